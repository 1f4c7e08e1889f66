#include "pullback.h"

/* r = (mean(x^2) + eps)^(-1/2) for each row of n, y = x r weight; weight may be null */
void rms_norm_forward(int64_t rows, int threads, const float *restrict x, const float *restrict weight, float *restrict y, float *restrict r, int64_t n, float eps) {
#pragma omp parallel for if (rows * n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *a = x + row * n;
        float *out = y + row * n, sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += a[i] * a[i];
        const float root = 1.0f / sqrtf(sum / (float)n + eps);
        r[row] = root;
        if (weight) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) out[i] = a[i] * root * weight[i];
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) out[i] = a[i] * root;
        }
    }
}

/* dx = r (g - x r^2 mean(g x)) with g = dy weight, and for each of `parts` runs of rows the sum of dy x r, in sums[part][n] */
void rms_norm_backward(int64_t rows, int threads, const float *restrict dy, const float *restrict x, const float *restrict weight, const float *restrict r,
                       float *restrict dx, float *restrict sums, int64_t n, int64_t parts) {
#pragma omp parallel for if (rows * n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        float *dw = sums + part * n;
        for (int64_t row = part * rows / parts; row < (part + 1) * rows / parts; row++) {
            const float *d = dy + row * n, *a = x + row * n, root = r[row];
            float *out = dx + row * n, dot = 0.0f;
#pragma omp simd reduction(+ : dot)
            for (int64_t i = 0; i < n; i++) dot += d[i] * weight[i] * a[i];
            const float mean = dot * root * root / (float)n;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                dw[i] += d[i] * a[i] * root;
                out[i] = (d[i] * weight[i] - a[i] * mean) * root;
            }
        }
    }
}
