// All eigenvalues of many symmetric positive semidefinite matrices (Gram matrices), one thread block each.
//
// 1. Householder reduction to a tridiagonal matrix. The two passes over the trailing block that a step needs,
//    A <- A - v w^T - w v^T of the step before and p = A u of this one, are fused: each element of the lower
//    triangle is read once and written once per step. A warp takes ROWS rows at a time, its lanes take columns.
// 2. Bisection with Sturm counts, in s = sqrt(x), so that small singular values get the same absolute accuracy:
//    one count per thread on a uniform grid, then rounds that cut every bracket in two, or in three where there
//    are two threads for each eigenvalue.
//
// Compile-time constants: TILES (columns per lane: n <= 32 TILES), WARPS, ROWS (4 or 8), IN_SHARED (the packed lower
// triangle lives in shared memory; otherwise it is worked on where it lies: row stride `pitch`, a multiple of ROWS,
// rows and columns from n on are zero).

#define FULL 0xffffffffu
#define THREADS (32 * WARPS)
#define PADDED (32 * TILES)
#define TWO_EACH (THREADS >= 2 * PADDED)
#define ROUNDS (TWO_EACH ? 12 : 19)  // 3^12, 2^19: with the grid's 8 or 9 bits, 1e-8 of the largest singular value
#define INFINITE __longlong_as_double(0x7ff0000000000000LL)
#define NOT_A_NUMBER __longlong_as_double(0x7ff8000000000000LL)
#define TINY 1e-40  // floor of squared off-diagonals: a perturbation of 1e-20, far below rounding

#if IN_SHARED
#define ROW(i) ((i) * ((i) + 1) / 2)
#else
#define ROW(i) ((long long)(i) * pitch)
#endif

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int bit = 16; bit; bit >>= 1) x += __shfl_xor_sync(FULL, x, bit);
    return x;
}

// The sums over lanes of each of ROWS values; lane L gets that of value L % ROWS. Cheaper than ROWS warp_sums.
__device__ __forceinline__ double warp_sum_rows(double* value, int lane) {
#pragma unroll
    for (int half = ROWS / 2, bit = 1; half; half >>= 1, bit <<= 1) {
#pragma unroll
        for (int q = 0; q < half; ++q) {
            double low = value[2 * q], high = value[2 * q + 1];
            bool upper = lane & bit;
            value[q] = (upper ? high : low) + __shfl_xor_sync(FULL, upper ? low : high, bit);
        }
    }
#pragma unroll
    for (int bit = ROWS; bit < 32; bit <<= 1) value[0] += __shfl_xor_sync(FULL, value[0], bit);
    return value[0];
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

// Householder steps: fills t with the diagonal and the off-diagonal to its left. Names: v, w are those of the last
// step, still to be applied to A; u is the reflector of this step. Rows and columns before `next` are finished: the
// pass may touch them, since u is zero there, and nobody reads them again.
__device__ void tridiagonalise(double* a, double2* t, double* buffers, int n, int pitch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    double* partial = buffers;                        // WARPS x PADDED: each warp's sums over its rows, per column
    double2* pair = (double2*)(partial + WARPS * PADDED);  // (v, w) at the rows
    double* column = (double*)(pair + PADDED);        // the column that comes next, one update behind
    double* product = column + PADDED;                // p = A u of the last step
    double* row_sum = product + PADDED;               // the part of p that rows give
    double* last = row_sum + PADDED;                  // v
    double* reflector = last + PADDED;                // u
    double* reduced = reflector + PADDED;             // one number per warp
    double v[TILES], w[TILES], u[TILES], sums[TILES];  // at this lane's columns
#pragma unroll
    for (int k = 0; k < TILES; ++k) v[k] = w[k] = 0.0;
    for (int j = threadIdx.x; j < PADDED; j += THREADS) {
        column[j] = j < n ? a[ROW(j)] : 0.0;
        product[j] = last[j] = reflector[j] = row_sum[j] = 0.0;
    }
    double tau = 0.0, bend = 0.0;  // w = tau p + bend v
    double left = 0.0;             // the off-diagonal left of this step's diagonal
    __syncthreads();
    for (int step = 0; step < n; ++step) {
        // Every warp builds the reflector for itself, which saves a barrier.
        int next = min(step + 1, n - 1);
        double v_step = last[step], w_step = tau * product[step] + bend * v_step;
        double v_next = last[next], w_next = tau * product[next] + bend * v_next;
        double norm2 = 0.0;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            int j = lane + 32 * k;
            u[k] = j > next ? column[j] - v[k] * w_step - w[k] * v_step : 0.0;
            norm2 += u[k] * u[k];
        }
        norm2 = warp_sum(norm2);
        double alpha = column[next] - v_next * w_step - w_next * v_step;
        double square = alpha * alpha + norm2;
        double inverse = norm2 > 0.0 ? rsqrt(square) : 0.0;
        double size = square * inverse;
        double beta = norm2 > 0.0 ? -copysign(size, alpha) : alpha;
        if (threadIdx.x == 0) t[step] = make_double2(column[step] - 2.0 * v_step * w_step, left);
        left = beta;
        if (step + 2 >= n) {
            if (threadIdx.x == 0 && step + 1 < n)
                t[n - 1] = make_double2(a[ROW(n - 1) + n - 1] - 2.0 * v_next * w_next, left);
            break;
        }
        double scale = norm2 > 0.0 ? copysign(__drcp_rn(fabs(alpha) + size), alpha) : 0.0;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            int j = lane + 32 * k;
            u[k] = j == next ? 1.0 : u[k] * scale;
            sums[k] = 0.0;
            if (warp == k % WARPS) {
                reflector[j] = u[k];
                pair[j] = make_double2(v[k], w[k]);
            }
        }
        __syncthreads();
        double inner = 0.0;  // this lane's part of u . p
        int first_tile = next / 32;
        for (int i0 = next / ROWS * ROWS + ROWS * warp; i0 < n; i0 += ROWS * WARPS) {
            double vi[ROWS], wi[ROWS], ui[ROWS], dot[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                double2 both = pair[i0 + r];
                vi[r] = both.x;
                wi[r] = both.y;
                ui[r] = reflector[i0 + r];
                dot[r] = 0.0;
            }
            int last_tile = i0 / 32;  // the one on the diagonal: ROWS divides 32
#pragma unroll
            for (int k = 0; k < TILES; ++k) {
                if (k < first_tile || k > last_tile) continue;
                int j = lane + 32 * k;
                if (k < last_tile) {
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        double* at = a + ROW(i0 + r) + j;
                        double x = *at - vi[r] * w[k] - wi[r] * v[k];
                        *at = x;
                        dot[r] += x * u[k];
                        sums[k] += x * ui[r];
                    }
                } else {
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        if (j > i0 + r) continue;
                        double* at = a + ROW(i0 + r) + j;
                        double x = *at - vi[r] * w[k] - wi[r] * v[k];
                        *at = x;
                        if (j < i0 + r) dot[r] += x * u[k];
                        sums[k] += x * ui[r];
                    }
                }
            }
            double total = warp_sum_rows(dot, lane);
            if (lane < ROWS) {
                row_sum[i0 + lane] = total;
                inner += total * reflector[i0 + lane];
            }
        }
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            partial[warp * PADDED + lane + 32 * k] = sums[k];
            inner += u[k] * sums[k];
        }
        inner = warp_sum(inner);
        if (lane == 0) reduced[warp] = inner;
        __syncthreads();
        for (int j = threadIdx.x; j < n; j += THREADS) {
            double p = row_sum[j];
#pragma unroll
            for (int r = 0; r < WARPS; ++r) p += partial[r * PADDED + j];
            product[j] = j >= next ? p : 0.0;
            column[j] = j >= next ? a[ROW(j) + next] : 0.0;
        }
        __syncthreads();
        inner = 0.0;
#pragma unroll
        for (int r = 0; r < WARPS; ++r) inner += reduced[r];
        tau = norm2 > 0.0 ? 1.0 + fabs(alpha) * inverse : 0.0;
        bend = -0.5 * tau * tau * inner;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            v[k] = u[k];
            w[k] = tau * product[lane + 32 * k] + bend * u[k];
        }
        double* swap = last;
        last = reflector;
        reflector = swap;
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

// Eigenvalues of the normalised t in ascending order.
__device__ void bisect(const double2* t, int* counts, double* out, int n, double bound) {
    int length = (n + 7) / 8 * 8;
    double cell = 1.0 / THREADS;
    double grid = (threadIdx.x + 1) * cell;
    counts[threadIdx.x] = count_below(t, length, grid * grid);
    __syncthreads();
    const int each = TWO_EACH ? 2 : 1;
    for (int first = 0; first < n; first += THREADS / each) {
        int wanted = first + (int)threadIdx.x / each, index = min(wanted, n - 1);
        int low = 0, high = THREADS - 1;  // the first grid point with more than `index` eigenvalues below it
        while (low < high) {
            int middle = (low + high) / 2;
            if (counts[middle] > index) high = middle;
            else low = middle + 1;
        }
        double from = low * cell, to = (low + 1) * cell;
        bool second = TWO_EACH && (threadIdx.x & 1);
        for (int round = 0; round < ROUNDS; ++round) {
            double part = (to - from) * (TWO_EACH ? 1.0 / 3.0 : 0.5);
            double s = from + (second ? 2.0 : 1.0) * part;
            int above = count_below(t, length, s * s) > index;
#if TWO_EACH
            int other = __shfl_xor_sync(FULL, above, 1);
            bool one = second ? other : above, two = second ? above : other;
#else
            bool one = above, two = true;
#endif
            double base = from;
            if (!one) from = two ? base + part : base + 2.0 * part;
            if (one) to = base + part;
            else if (two) to = base + 2.0 * part;
        }
        double s = from > 0.0 ? 0.5 * (from + to) : 0.0;
        if (!second && wanted < n) out[index] = s * s * bound;
    }
}

__global__ void __launch_bounds__(THREADS, 1) eigenvalues(double* matrices, double* out, int n, int pitch) {
    extern __shared__ double shared[];
    double2* t = (double2*)shared;
    int* counts = (int*)(t + PADDED);
    double* buffers = (double*)(counts + THREADS);
    double* source = matrices + (long long)blockIdx.x * pitch * pitch;
    out += (long long)blockIdx.x * n;
#if IN_SHARED
    double* a = buffers + (WARPS + 7) * PADDED + 32;
    for (int i = threadIdx.x >> 5; i < (n + ROWS - 1) / ROWS * ROWS; i += WARPS)
        for (int j = threadIdx.x & 31; j <= i; j += 32) a[ROW(i) + j] = i < n ? source[(long long)i * pitch + j] : 0.0;
    __syncthreads();
#else
    double* a = source;
#endif
    tridiagonalise(a, t, buffers, n, pitch);
    double bound = normalise(t, buffers, n);
    if (bound > 0.0 && bound < INFINITE) bisect(t, counts, out, n, bound);
    else
        for (int i = threadIdx.x; i < n; i += THREADS) out[i] = bound == 0.0 ? 0.0 : NOT_A_NUMBER;
}
