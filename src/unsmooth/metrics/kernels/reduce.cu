// One thread block per sample: lengths, mean, HFC = X - 1 mean^T, HFC mean, and the sum of unit tokens, all in
// float64 from tokens of any dtype. X is read three times, the second and third time from the cache.
//
// Compile-time constant: INPUT (0 float64, 1 float32, 2 bfloat16, 3 float16). 1024 threads.

#define FULL 0xffffffffu
#define COLUMNS 256  // columns that are summed at a time, by THREADS / COLUMNS groups of rows
#define GROUPS (1024 / COLUMNS)

#if INPUT == 0
typedef double Value;
__device__ __forceinline__ double widen(Value x) { return x; }
#elif INPUT == 1
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

// Sums over tokens of weight_i x_ij for every j, into `result` (shared).
__device__ void column_sums(const Value* x, const double* weight, double* result, double* scratch, int n, int d) {
    int lane = threadIdx.x % COLUMNS, group = threadIdx.x / COLUMNS;
    for (int base = 0; base < d; base += COLUMNS) {
        int j = base + lane;
        double sum = 0.0;
        if (j < d) {
#pragma unroll 8
            for (int i = group; i < n; i += GROUPS) {
                double w = weight[i];
                double value = widen(x[(long long)i * d + j]);
                sum += w != 0.0 ? w * value : 0.0;  // a token of weight 0 may hold NaN
            }
        }
        scratch[threadIdx.x] = sum;
        __syncthreads();
        if (group == 0 && j < d) {
            for (int g = 1; g < GROUPS; ++g) sum += scratch[g * COLUMNS + lane];
            result[j] = sum;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(1024, 1)
reduce(const Value* tokens, const unsigned char* mask, int masked, double* norms, double* means, double* high,
       double* cross, double* unit_sums, int n, int d) {
    extern __shared__ double shared[];
    double* scratch = shared;
    double* mean = scratch + 1024;
    double* unit_sum = mean + d;
    double* weight = unit_sum + d;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    long long sample = blockIdx.x;
    const Value* x = tokens + sample * n * d;
    double count = masked ? 0.0 : n;
    for (int i = threadIdx.x; i < n; i += 1024) weight[i] = !masked || mask[sample * n + i] ? 1.0 : 0.0;
    __syncthreads();
    for (int i = 0; masked && i < n; ++i) count += weight[i];
    column_sums(x, weight, mean, scratch, n, d);
    for (int j = threadIdx.x; j < d; j += 1024) {
        mean[j] /= count;
        means[sample * d + j] = mean[j];
    }
    __syncthreads();
    for (int i = warp; i < n; i += 32) {
        double square = 0.0, along = 0.0;
        bool kept = weight[i] != 0.0;
        double* row = high + (sample * n + i) * d;
#pragma unroll 8
        for (int j = lane; j < d; j += 32) {
            double value = widen(x[(long long)i * d + j]);
            double h = kept ? value - mean[j] : 0.0;
            row[j] = h;
            along += h * mean[j];
            square += kept ? value * value : 0.0;
        }
#pragma unroll
        for (int bit = 16; bit; bit >>= 1) {
            square += __shfl_xor_sync(FULL, square, bit);
            along += __shfl_xor_sync(FULL, along, bit);
        }
        if (lane == 0) {
            double norm = sqrt(square);
            norms[sample * n + i] = norm;
            cross[sample * n + i] = along;
            weight[i] = norm == 0.0 ? 0.0 : norm < 1e300 ? 1.0 / norm : norm - norm;  // NaN stays visible
        }
    }
    __syncthreads();
    column_sums(x, weight, unit_sum, scratch, n, d);
    for (int j = threadIdx.x; j < d; j += 1024) unit_sums[sample * d + j] = unit_sum[j];
}
