// Two kernels that read tokens of 16 or 32 bits and add in float64. Each block takes ROWS tokens of one sample, a warp
// a token at a time. `sums`: lengths, and the block's share of the sum of tokens and of unit tokens. `centre`: of each
// token, the square of HFC = x - mean and HFC . mean, once the means are known.
//
// Compile-time constants: INPUT (1 float32, 2 bfloat16, 3 float16), VEC (values that are read at a time, a divisor of d).

#define FULL 0xffffffffu
#define THREADS 256
#define WARPS (THREADS / 32)
#define ROWS 32

#if INPUT == 1
typedef float Value;
__device__ __forceinline__ double widen(Value x) { return x; }
#elif INPUT == 2
typedef unsigned short Value;
__device__ __forceinline__ double widen(Value x) { return __uint_as_float((unsigned)x << 16); }
#else
typedef unsigned short Value;
__device__ __forceinline__ double widen(Value x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}
#endif

typedef struct __align__(sizeof(Value) * VEC) {
    Value at[VEC];
} Pack;

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(FULL, x, bit);
    return x;
}

__global__ void __launch_bounds__(THREADS)
sums(const Value* tokens, const unsigned char* mask, int masked, double* norms, double* partial, int chunks, int n, int d) {
    __shared__ double inverse[ROWS];
    __shared__ int kept[ROWS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    long long sample = blockIdx.x / chunks;
    int first = (blockIdx.x % chunks) * ROWS, last = min(n, first + ROWS);
    const Value* x = tokens + (sample * n + first) * d;
    for (int i = warp; i < last - first; i += WARPS) {
        int keep = !masked || mask[sample * n + first + i];
        double square = 0.0;
        for (int j = lane * VEC; keep && j < d; j += 32 * VEC) {
            Pack pack = *(const Pack*)(x + (long long)i * d + j);
#pragma unroll
            for (int v = 0; v < VEC; ++v) square = fma(widen(pack.at[v]), widen(pack.at[v]), square);
        }
        double norm = sqrt(warp_sum(square));
        if (lane == 0) {
            norms[sample * n + first + i] = norm;
            kept[i] = keep;
            inverse[i] = norm == 0.0 ? 0.0 : norm < 1e300 ? 1.0 / norm : norm - norm;  // NaN stays visible
        }
    }
    __syncthreads();
    double* out = partial + (long long)blockIdx.x * 2 * d;
    for (int j = threadIdx.x * VEC; j < d; j += THREADS * VEC) {
        double sum[VEC], unit[VEC];
#pragma unroll
        for (int v = 0; v < VEC; ++v) sum[v] = unit[v] = 0.0;
        for (int i = 0; i < last - first; ++i) {
            if (!kept[i]) continue;  // it may hold NaN
            Pack pack = *(const Pack*)(x + (long long)i * d + j);
#pragma unroll
            for (int v = 0; v < VEC; ++v) {
                double value = widen(pack.at[v]);
                sum[v] += value;
                unit[v] = fma(value, inverse[i], unit[v]);
            }
        }
#pragma unroll
        for (int v = 0; v < VEC; ++v) {
            out[j + v] = sum[v];
            out[d + j + v] = unit[v];
        }
    }
}

__global__ void __launch_bounds__(THREADS)
centre(const Value* tokens, const unsigned char* mask, int masked, const double* means, double* squares, double* cross,
       int chunks, int n, int d) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    long long sample = blockIdx.x / chunks;
    int first = (blockIdx.x % chunks) * ROWS, last = min(n, first + ROWS);
    const double* mean = means + sample * d;
    for (int i = first + warp; i < last; i += WARPS) {
        long long place = sample * n + i;
        int keep = !masked || mask[place];
        double square = 0.0, along = 0.0;
        for (int j = lane * VEC; keep && j < d; j += 32 * VEC) {
            Pack pack = *(const Pack*)(tokens + place * d + j);
#pragma unroll
            for (int v = 0; v < VEC; ++v) {
                double centred = widen(pack.at[v]) - mean[j + v];
                square = fma(centred, centred, square);
                along = fma(centred, mean[j + v], along);
            }
        }
        square = warp_sum(square);
        along = warp_sum(along);
        if (lane == 0) {
            squares[place] = square;
            cross[place] = along;
        }
    }
}
