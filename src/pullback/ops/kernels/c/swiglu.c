#include "pullback.h"

/* y = g sigmoid(g) u */
void swiglu_forward(int64_t n, int threads, const float *restrict g, const float *restrict u, float *restrict y) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) y[i] = times_sigmoid(g[i], g[i]) * u[i];
}

/* du = dy g s and dg = dy u s (1 + g (1 - s)) */
void swiglu_backward(int64_t n, int threads, const float *restrict dy, const float *restrict g, const float *restrict u, float *restrict dg, float *restrict du) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float rest, s = sigmoid_(g[i], &rest), a = dy[i] * s;
        du[i] = a * g[i];
        dg[i] = a * u[i] * (1.0f + g[i] * rest);
    }
}
