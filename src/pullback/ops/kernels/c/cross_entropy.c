#include "pullback.h"

enum { EACH, SUM, MEAN };

static int64_t counted(const int64_t *target, int64_t rows, int64_t ignored) {
    int64_t count = 0;
    for (int64_t row = 0; row < rows; row++) count += target[row] != ignored;
    return count;
}

/* For each row of n logits: lse, and loss = lse - (1 - smoothing) z_t - smoothing mean(z) + z_loss lse^2, or 0 where t is `ignored`; and their sum or mean.
   Sets *wrong where t is neither that nor a class. */
void cross_entropy_forward(int64_t rows, int threads, const float *restrict logits, const int64_t *restrict target, float *restrict loss, float *restrict lse,
                           float *restrict total, int32_t *wrong, int64_t n, int64_t ignored, int32_t reduction, float smoothing, float z_loss) {
#pragma omp parallel for if (rows * n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *z = logits + row * n;
        float top = -INFINITY, sum = 0.0f, plain = 0.0f;
#pragma omp simd reduction(max : top)
        for (int64_t i = 0; i < n; i++) top = z[i] > top ? z[i] : top;
        top = top == -INFINITY ? 0.0f : top;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += exp_87(z[i] - top);
        const float log_sum = top + logf(sum);
        const int64_t t = target[row];
        lse[row] = log_sum;
        loss[row] = 0.0f;
        if (t == ignored) continue;
        if (t < 0 || t >= n) {
#pragma omp atomic write
            *wrong = 1;
            continue;
        }
        float value = log_sum - (1.0f - smoothing) * z[t] + z_loss * log_sum * log_sum;
        if (smoothing != 0.0f) {
#pragma omp simd reduction(+ : plain)
            for (int64_t i = 0; i < n; i++) plain += z[i];
            value -= smoothing * plain / (float)n;
        }
        loss[row] = value;
    }
    if (reduction == EACH) return;
    double sum = 0.0;
    for (int64_t row = 0; row < rows; row++) sum += loss[row];
    *total = (float)(reduction == MEAN ? sum / (double)counted(target, rows, ignored) : sum);
}

/* The gradient for the logits from dy, one number, or one for each row if nothing was reduced; `out` may be `logits` */
void cross_entropy_backward(int64_t rows, int threads, const float *logits, const int64_t *restrict target, const float *restrict dy,
                            const float *restrict lse, float *out, int64_t n, int64_t ignored, int32_t reduction, float smoothing, float z_loss) {
    const float factor = reduction == MEAN ? 1.0f / (float)counted(target, rows, ignored) : 1.0f;
#pragma omp parallel for if (rows * n > GRAIN) num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        const float *z = logits + row * n;
        float *dz = out + row * n;
        const int64_t t = target[row];
        if (t == ignored) {
            for (int64_t i = 0; i < n; i++) dz[i] = 0.0f;
            continue;
        }
        const float scale = dy[reduction == EACH ? row : 0] * factor, base = lse[row];
        const float rate = scale * (1.0f + 2.0f * z_loss * base), even = scale * smoothing / (float)n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dz[i] = rate * exp_87(z[i] - base) - even;
        if (t >= 0 && t < n) dz[t] -= scale * (1.0f - smoothing);
    }
}
