#include "pullback.h"

/* dx = dy where y > 0 and dy > 0, else 0 */
void guided_relu_backward(int64_t n, int threads, const float *restrict dy, const float *restrict y, float *restrict dx) {
    PARALLEL(n)
    for (int64_t i = 0; i < n; i++) {
        float g = dy[i] < 0.0f ? 0.0f : dy[i];
        dx[i] = y[i] > 0.0f ? g : 0.0f;
    }
}
