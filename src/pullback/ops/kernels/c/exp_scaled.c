#include "pullback.h"

/* y = scale exp(x) */
void exp_scaled_forward(int64_t n, int threads, const float *restrict x, float *restrict y, float scale) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) y[i] = scale * exp_(x[i]);
}
