#include "pullback.h"

#define SCALE 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define CUBIC 0.044715f

/* y = x sigmoid(2 u), which is x (1 + tanh u) / 2, with one exp in place of tanh */
void gelu_tanh_forward(int64_t n, int threads, const float *restrict x, float *restrict y) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        y[i] = times_sigmoid(x[i], SCALE * x[i] * (1.0f + CUBIC * x[i] * x[i]));
    }
}

void gelu_tanh_backward(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float square = x[i] * x[i];
        float rest, s = sigmoid_(SCALE * x[i] * (1.0f + CUBIC * square), &rest);
        float slope = SCALE * x[i] * (1.0f + 3.0f * CUBIC * square);
        dx[i] = dy[i] * s * (1.0f + slope * rest);
    }
}
