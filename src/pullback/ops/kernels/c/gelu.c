#include "pullback.h"

#define SCALE 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define CUBIC 0.044715f
#define LINEAR_2 2.302208198f /* SCALE / ln 2: the exponent to base 2 */
#define CUBIC_2 0.1029432397f /* CUBIC of it */
#define LAST 125.0f           /* 2^LAST and 2^-LAST are normal, and times the polynomial too */

/* 2^x for |x| <= LAST within 2 units in the last place. The rounding of 2 u, of which it is taken, is larger, so that nothing is lost by base 2.
   x = n + f with |f| <= 1/2, n by the addend that leaves no bits for fractions; n is added to the exponent of the polynomial in f, which has the
   least relative error of its degree. */
static inline float exp2_inside(float x) {
    bits32 shifted, p;
    shifted.f = x + 12582912.0f;
    float f = x - (shifted.f - 12582912.0f);
    p.f = 1.326472707e-3f;
    p.f = p.f * f + 9.671512649e-3f;
    p.f = p.f * f + 5.550733744e-2f;
    p.f = p.f * f + 2.402224209e-1f;
    p.f = p.f * f + 6.931469776e-1f;
    p.f = p.f * f + 1.0f;
    p.i = (int32_t)((uint32_t)p.i + ((uint32_t)shifted.i << 23));
    return p.f;
}

static inline float up_to_last(float x) {
    float low = x < -LAST ? -LAST : x;
    return low > LAST ? LAST : low;
}

/* y = x sigmoid(2 u), which is x (1 + tanh u) / 2, with one exp in place of tanh */
void gelu_tanh_forward(int64_t n, int threads, const float *restrict x, float *restrict y) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float z = x[i] * (-LINEAR_2 - CUBIC_2 * x[i] * x[i]);
        float e = exp2_inside(up_to_last(z));
        y[i] = x[i] / (1.0f + (z > LAST ? INFINITY : e));
    }
}

/* dx = dy (s + x s (1 - s) 2 du/dx); x s first, which is 0 where du/dx is large and s is not */
void gelu_tanh_backward(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float square = x[i] * x[i];
        float z = x[i] * (-LINEAR_2 - CUBIC_2 * square);
        float e = exp2_inside(up_to_last(z));
        float s = 1.0f / (1.0f + e);
        float rest = z < -LAST ? 0.0f : e * s;
        s = z > LAST ? 0.0f : s;
        dx[i] = dy[i] * (s + x[i] * s * rest * (SCALE + 3.0f * SCALE * CUBIC * square));
    }
}
