/* RMS norm over rows of n packed float32 numbers: y = x r w with r = 1 / sqrt(mean(x^2) + eps). */
#include <math.h>
#include <stdint.h>

void rms_norm(const float *x, const float *w, double eps, int64_t rows, int64_t n, float *y, float *r)
{
    for (int64_t i = 0; i < rows; i++, x += n, y += n) {
        double squares = 0;
        for (int64_t j = 0; j < n; j++)
            squares += (double)x[j] * x[j];
        r[i] = (float)(1 / sqrt(squares / n + eps));
        for (int64_t j = 0; j < n; j++)
            y[j] = x[j] * r[i] * w[j];
    }
}

/* dx = r w dy - x r^3 sum(w dy x) / n;  dw, zeroed by the caller, gathers r dy x over the rows: many, so in double. */
void rms_norm_backward(const float *dy, const float *x, const float *w, const float *r, int64_t rows, int64_t n, float *dx, double *dw)
{
    for (int64_t i = 0; i < rows; i++, dy += n, x += n, dx += n) {
        double dot = 0;
        for (int64_t j = 0; j < n; j++)
            dot += (double)w[j] * dy[j] * x[j];
        double pull = dot * r[i] * r[i] * r[i] / n;
        for (int64_t j = 0; j < n; j++) {
            dx[j] = (float)((double)r[i] * w[j] * dy[j] - pull * x[j]);
            dw[j] += (double)r[i] * dy[j] * x[j];
        }
    }
}
