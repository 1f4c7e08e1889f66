#include "pullback.h"

#define RUN 4096 /* elements whose sum float32 may hold; runs are added up in double */

/* The largest element of a row, or 0 where that is infinite. */
static inline float base_of(const float *z, int64_t n) {
    float top = -INFINITY;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; i++) top = z[i] > top ? z[i] : top;
    return isinf(top) ? 0.0f : top;
}

/* log(sum(exp(z))) of each row of n */
void logsumexp_forward(int64_t rows, int threads, const float *restrict x, float *restrict y, int64_t n) {
#pragma omp parallel for if (rows * n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *z = x + row * n, base = base_of(z, n);
        double total = 0.0;
        for (int64_t start = 0; start < n; start += RUN) {
            const int64_t end = start + RUN < n ? start + RUN : n;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = start; i < end; i++) sum += exp_87(z[i] - base);
            total += sum;
        }
        y[row] = base + (float)log(total);
    }
}

/* dx = dy softmax(x), with one dy for each row */
void logsumexp_backward(int64_t rows, int threads, const float *restrict dy, const float *restrict x, float *restrict dx, int64_t n) {
#pragma omp parallel for if (rows * n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *z = x + row * n, base = base_of(z, n);
        float *out = dx + row * n;
        double total = 0.0;
        for (int64_t start = 0; start < n; start += RUN) {
            const int64_t end = start + RUN < n ? start + RUN : n;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (int64_t i = start; i < end; i++) {
                float power = exp_87(z[i] - base);
                out[i] = power;
                sum += power;
            }
            total += sum;
        }
        const float rate = (float)(dy[row] / total);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] *= rate;
    }
}
