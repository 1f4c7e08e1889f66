#include "pullback.h"

/* y = x sigmoid(beta x) */
void swish_forward(int64_t n, int threads, const float *restrict x, float *restrict y, float beta) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) y[i] = times_sigmoid(x[i], beta * x[i]);
}

/* dx = dy (s + beta x s (1 - s)) */
void swish_backward(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx, float beta) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float rest, s = sigmoid_(beta * x[i], &rest);
        dx[i] = dy[i] * s * (1.0f + beta * x[i] * rest);
    }
}
