// What the headers of a generated kernel use of headers that are not for NVRTC: the standard
// library, and our own that only the host needs. Stands for each of them
// (pointwise_chain_nvrtc.cpp).
#ifndef SINTER_POINTWISE_CHAIN_STD
#define SINTER_POINTWISE_CHAIN_STD

#define SINTER_FIELDS(...)
#undef __host__
#define __host__
#define NAN __builtin_bit_cast(float, 0x7fc00000u)
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;

namespace sinter {
struct Formula {
  constexpr Formula() = default;
  constexpr Formula(const char*) {}
};
}  // namespace sinter

namespace std {

using ::erf;
using ::exp;
using ::expm1;
using ::fabs;
using ::log;
using ::pow;
using ::sqrt;
using ::tanh;

template <class T> T&& forward(T& t) { return static_cast<T&&>(t); }
template <class T, class U> inline constexpr bool is_same_v = false;
template <class T> inline constexpr bool is_same_v<T, T> = true;
template <bool, class A, class> struct choice {
  using type = A;
};
template <class A, class B> struct choice<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B> using conditional_t = typename choice<kFirst, A, B>::type;

struct string_view {
  const char* text;
};
template <class T, size_t N> struct array {
  T values[N];
};

template <class...> struct tuple {};
template <class T> inline constexpr size_t tuple_size_v = 0;
template <class... T> inline constexpr size_t tuple_size_v<tuple<T...>> = sizeof...(T);
template <class... A, class... B> tuple<A..., B...> tuple_cat(tuple<A...>, tuple<B...>);
template <size_t N, class T> struct element;
template <size_t N, class T, class... More>
struct element<N, tuple<T, More...>> : element<N - 1, tuple<More...>> {};
template <class T, class... More> struct element<0, tuple<T, More...>> {
  using type = T;
};
template <size_t N, class T> using tuple_element_t = typename element<N, T>::type;

template <size_t...> struct index_sequence {};
template <size_t N> index_sequence<N> make_index_sequence() { return {}; }

}  // namespace std

namespace sinter {

struct Error {
  enum class Kind { dtype };
  Error(Kind, const char*);
};
template <class... T> const char* cat(const T&...);

}  // namespace sinter

#endif
