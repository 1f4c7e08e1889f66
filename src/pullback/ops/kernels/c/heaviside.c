#include "pullback.h"

/* y = 1 where x >= 0, else 0 */
void heaviside_forward(int64_t n, int threads, const float *restrict x, float *restrict y) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) y[i] = x[i] >= 0.0f ? 1.0f : 0.0f;
}

/* dx = dy alpha / 2 / (1 + (pi alpha x / 2)^2) */
void heaviside_arctan(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx, float alpha) {
    const float half = alpha / 2.0f, rate = 1.57079632679f * alpha;
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float scaled = rate * x[i];
        dx[i] = dy[i] * half / (1.0f + scaled * scaled);
    }
}

/* dx = dy / (1 + alpha |x|)^2 */
void heaviside_fast_sigmoid(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx, float alpha) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float scaled = 1.0f + alpha * fabsf(x[i]);
        dx[i] = dy[i] / (scaled * scaled);
    }
}

/* dx = dy alpha max(1 - alpha |x|, 0) */
void heaviside_triangle(int64_t n, int threads, const float *restrict dy, const float *restrict x, float *restrict dx, float alpha) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float height = 1.0f - alpha * fabsf(x[i]);
        dx[i] = dy[i] * alpha * (height < 0.0f ? 0.0f : height);
    }
}
