// All eigenvalues of many symmetric positive semidefinite matrices (Gram matrices), one thread block each.
//
// 1. Householder reduction to a tridiagonal matrix. The two passes over the trailing block that a step needs,
//    A <- A - v w^T - w v^T of the step before and p = A v of this one, are fused: each element of the lower
//    triangle is read once and written once per step. A warp takes 4 rows at a time, its lanes take columns.
// 2. Bisection with Sturm counts, in s = sqrt(x), so that small singular values get the same absolute accuracy:
//    one count per thread on a uniform grid, then THIRDS rounds that cut every bracket in three.
//
// Compile-time constants: TILES (columns per lane: n <= 32 TILES), WARPS, IN_SHARED (the packed lower triangle
// lives in shared memory; otherwise it stays where it is, row stride n, and is overwritten).

#define FULL 0xffffffffu
#define THREADS (32 * WARPS)
#define PADDED (32 * TILES)
#define THIRDS 14      // 3^14 > 2^22: with the grid's bits, a relative 1e-9 of the largest singular value
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000LL)
#define TINY 1e-40     // floor of squared off-diagonals: a perturbation of 1e-20, far below rounding

#if IN_SHARED
#define ROW(i) ((i) * ((i) + 1) / 2)
#else
#define ROW(i) ((long long)(i) * n)
#endif

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

// The sums over lanes of four values; lane L gets that of value (L & 3).
__device__ __forceinline__ double warp_sum4(double a, double b, double c, double d, int lane) {
    bool odd = lane & 1, upper = lane & 2;
    double even = (odd ? b : a) + __shfl_xor_sync(FULL, odd ? a : b, 1);
    double next = (odd ? d : c) + __shfl_xor_sync(FULL, odd ? c : d, 1);
    double sum = (upper ? next : even) + __shfl_xor_sync(FULL, upper ? even : next, 2);
    sum += __shfl_xor_sync(FULL, sum, 4);
    sum += __shfl_xor_sync(FULL, sum, 8);
    return sum + __shfl_xor_sync(FULL, sum, 16);
}

// How many eigenvalues lie below x: sign changes of the leading minors p_i of T - x, rescaled every 8 steps.
__device__ __forceinline__ int count_below(const double2* t, int n, double x) {
    double before = 0.0, now = 1.0;
    int count = 0;
    for (int i = 0; i < n; i += 8) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            double2 entry = t[i + k];  // diagonal, squared off-diagonal to the left
            double next = (entry.x - x) * now - entry.y * before;
            count += (unsigned)(__double2hiint(next) ^ __double2hiint(now)) >> 31;
            before = now;
            now = next;
        }
        double size = fmax(fabs(now), fabs(before));
        double scale = size < 1e-200 ? 1e200 : size < 1e-100 ? 1e100 : size > 1e100 ? 1e-100 : 1.0;
        now *= scale;
        before *= scale;
    }
    return count;
}

// Householder steps: fills t with the diagonal and the off-diagonal to its left. See the head of this file.
__device__ void tridiagonalise(double* a, const double* source, double2* t, double* buffers, int n) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double* partial = buffers;                   // WARPS x PADDED: each warp's sums over its rows, per column
    double* column = partial + WARPS * PADDED;   // the column that comes next, one update behind
    double* product = column + PADDED;           // p = A v of the last step
    double* row_sum = product + PADDED;          // the part of p that rows give
    double* old_v = row_sum + PADDED;            // v of the last step
    double* new_v = old_v + PADDED;              // v of this step
    double* reduced = new_v + PADDED;            // one number per warp
    double v[TILES], w[TILES], u[TILES], sums[TILES];  // at this lane's columns: last v and w, new v, sums
#pragma unroll
    for (int k = 0; k < TILES; ++k) v[k] = w[k] = 0.0;
    for (int j = threadIdx.x; j < PADDED; j += THREADS) {
        column[j] = j < n ? source[(long long)j * n] : 0.0;
        product[j] = old_v[j] = new_v[j] = row_sum[j] = 0.0;
    }
    double tau = 0.0, bend = 0.0;  // w = tau p + bend v
    double left = 0.0;             // the off-diagonal left of this step's diagonal
    __syncthreads();
    for (int step = 0; step < n; ++step) {
        // Every warp builds the reflector for itself, which saves a barrier.
        int next = min(step + 1, n - 1);
        double v_step = old_v[step], w_step = tau * product[step] + bend * v_step;
        double v_next = old_v[next], w_next = tau * product[next] + bend * v_next;
        double norm2 = 0.0;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            int j = lane + 32 * k;
            u[k] = column[j] - v[k] * w_step - w[k] * v_step;
            if (j > next && j < n) norm2 += u[k] * u[k];
        }
        norm2 = warp_sum(norm2);
        double alpha = column[next] - v_next * w_step - w_next * v_step;
        double beta = norm2 > 0.0 ? -copysign(sqrt(alpha * alpha + norm2), alpha) : alpha;
        if (threadIdx.x == 0) t[step] = make_double2(column[step] - 2.0 * v_step * w_step, left);
        left = beta;
        if (step + 2 >= n) {
            if (threadIdx.x == 0 && step + 1 < n)
                t[n - 1] = make_double2(a[ROW(n - 1) + n - 1] - 2.0 * v_next * w_next, left);
            break;
        }
        double scale = norm2 > 0.0 ? 1.0 / (alpha - beta) : 0.0;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            int j = lane + 32 * k;
            u[k] = j > next && j < n ? u[k] * scale : j == next ? 1.0 : 0.0;
            sums[k] = 0.0;
            if (warp == 0) new_v[j] = u[k];
        }
        __syncthreads();
        for (int i0 = next + 4 * warp; i0 < n; i0 += 4 * WARPS) {
            double vi[4], wi[4], ui[4], dot[4];
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                int i = min(i0 + r, n - 1);
                vi[r] = old_v[i];
                wi[r] = tau * product[i] + bend * vi[r];
                ui[r] = new_v[i];
                dot[r] = 0.0;
            }
#pragma unroll
            for (int k = 0; k < TILES; ++k) {
                if (32 * k + 31 < next || 32 * k > i0 + 3) continue;  // a tile left or right of these rows
                int j = lane + 32 * k;
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    int i = i0 + r;
                    if (j < next || j > i || i >= n) continue;
                    double x = a[ROW(i) + j] - vi[r] * w[k] - wi[r] * v[k];
                    a[ROW(i) + j] = x;
                    dot[r] += x * u[k];
                    if (j < i) sums[k] += x * ui[r];
                    if (j == next) column[i] = x;
                }
            }
            double total = warp_sum4(dot[0], dot[1], dot[2], dot[3], lane);
            if (lane < 4 && i0 + lane < n) row_sum[i0 + lane] = total;
        }
#pragma unroll
        for (int k = 0; k < TILES; ++k) partial[warp * PADDED + lane + 32 * k] = sums[k];
        __syncthreads();
        double part = 0.0;  // of p . v
        for (int j = threadIdx.x; j < n; j += THREADS) {
            double p = row_sum[j];
#pragma unroll
            for (int r = 0; r < WARPS; ++r) p += partial[r * PADDED + j];
            p = j >= next ? p : 0.0;
            product[j] = p;
            part += p * new_v[j];
        }
        part = warp_sum(part);
        if (lane == 0) reduced[warp] = part;
        __syncthreads();
        tau = norm2 > 0.0 ? (beta - alpha) / beta : 0.0;
        bend = -0.5 * tau * tau * warp_sum(lane < WARPS ? reduced[lane] : 0.0);
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            v[k] = u[k];
            w[k] = tau * product[lane + 32 * k] + bend * u[k];
        }
        double* swap = old_v;
        old_v = new_v;
        new_v = swap;
    }
    __syncthreads();
}

// Scales t so that its eigenvalues lie in [-1, 1] and squares the off-diagonals; returns the scale.
__device__ double normalise(double2* t, double* reduced, int n) {
    double bound = 0.0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        double reach = fabs(t[i].x) + fabs(t[i].y) + (i + 1 < n ? fabs(t[i + 1].y) : 0.0);
        bound = fmax(bound, reach < 1e300 ? reach : INFINITE);  // also where reach is NaN
    }
#pragma unroll
    for (int step = 16; step; step >>= 1) bound = fmax(bound, __shfl_xor_sync(FULL, bound, step));
    if ((threadIdx.x & 31) == 0) reduced[threadIdx.x >> 5] = bound;
    __syncthreads();
    bound = reduced[0];
    for (int r = 1; r < WARPS; ++r) bound = fmax(bound, reduced[r]);
    double inverse = bound > 0.0 ? 1.0 / bound : 0.0;
    for (int i = threadIdx.x; i < PADDED; i += THREADS) {
        double2 entry = t[i];
        double side = entry.y * inverse;
        // Padding: an eigenvalue above every x asked for.
        t[i] = i < n ? make_double2(entry.x * inverse, fmax(side * side, TINY)) : make_double2(4.0, TINY);
    }
    __syncthreads();
    return bound;
}

// Eigenvalues of the normalised t in ascending order. Two threads share a bracket, so that a round cuts it in three.
__device__ void bisect(const double2* t, int* counts, double* out, int n, double bound) {
    int length = (n + 7) / 8 * 8;
    double cell = 1.0 / THREADS;
    double grid = (threadIdx.x + 1) * cell;
    counts[threadIdx.x] = count_below(t, length, grid * grid);
    __syncthreads();
    for (int first = 0; first < n; first += THREADS / 2) {
        int index = min(first + (int)threadIdx.x / 2, n - 1);
        int low = 0, high = THREADS - 1;  // the first grid point with more than `index` eigenvalues below it
        while (low < high) {
            int middle = (low + high) / 2;
            if (counts[middle] > index) high = middle;
            else low = middle + 1;
        }
        double from = low * cell, to = (low + 1) * cell;
        bool second = threadIdx.x & 1;
        for (int round = 0; round < THIRDS; ++round) {
            double third = (to - from) * (1.0 / 3.0);
            double s = from + (second ? 2.0 : 1.0) * third;
            int above = count_below(t, length, s * s) > index;
            int other = __shfl_xor_sync(FULL, above, 1);
            bool first_above = second ? other : above, second_above = second ? above : other;
            double base = from;
            if (!first_above) from = second_above ? base + third : base + 2.0 * third;
            if (first_above) to = base + third;
            else if (second_above) to = base + 2.0 * third;
        }
        double s = from > 0.0 ? 0.5 * (from + to) : 0.0;
        if (!second && first + (int)threadIdx.x / 2 < n) out[index] = s * s * bound;
    }
}

__global__ void __launch_bounds__(THREADS, 1) eigenvalues(double* matrices, double* out, int n) {
    extern __shared__ double shared[];
    double2* t = (double2*)shared;
    int* counts = (int*)(t + PADDED);
    double* buffers = (double*)(counts + THREADS);
    double* source = matrices + (long long)blockIdx.x * n * n;
    out += (long long)blockIdx.x * n;
#if IN_SHARED
    double* a = buffers + (WARPS + 5) * PADDED + 32;
    for (int i = threadIdx.x >> 5; i < n; i += WARPS)
        for (int j = threadIdx.x & 31; j <= i; j += 32) a[ROW(i) + j] = source[(long long)i * n + j];
#else
    double* a = source;
#endif
    tridiagonalise(a, source, t, buffers, n);
    double bound = normalise(t, buffers, n);
    if (bound > 0.0 && bound < INFINITE) bisect(t, counts, out, n, bound);
    else
        for (int i = threadIdx.x; i < n; i += THREADS) out[i] = bound == 0.0 ? 0.0 : NOT_A_NUMBER;
}
