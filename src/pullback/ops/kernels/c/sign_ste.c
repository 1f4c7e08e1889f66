#include "pullback.h"

/* y = 1 where x >= 0, else -1 */
void sign_ste_forward(int64_t n, int threads, const float *restrict x, float *restrict y) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) y[i] = x[i] >= 0.0f ? 1.0f : -1.0f;
}

/* dx = dy where |x| <= 1, else dy times 0, so that NaN and infinity stay visible */
void sign_ste_backward(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * (fabsf(x[i]) <= 1.0f ? 1.0f : 0.0f);
}
