// Loss, concentration and free gap from the sums of each row; core/coins.py and core/bounds.py have the formulas.
#include <cfloat>
#include <cmath>
#include <cstdint>

template <typename Real>
static void coins(const Real *odds, const double *squares, const double *mass, const double *mass_squares, Real *loss,
                  Real *concentration, Real *free_gap, int64_t size, double rivals) {
#pragma omp parallel for simd schedule(static) if (size > 4096)
    for (int64_t i = 0; i < size; i++) {
        const bool flat = odds[i] > rivals * 0.5;
        const double base = flat ? 2.0 : 1.0, sign = flat ? -1.0 : 1.0;
        const double whole = std::floor(mass[i]), rest = mass[i] - whole;
        const double even = mass[i] * mass[i] / (rivals * base + sign * mass[i]);
        const double room = whole / (base + sign) + rest * rest / (base + sign * rest) - even;
        const bool empty = room <= 4.0 * DBL_EPSILON * even;
        double share = (mass_squares[i] - even) / (empty ? 1.0 : room);
        share = empty ? 0.0 : share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
        concentration[i] = Real(share);
        free_gap[i] = Real(share * room * ((flat ? 0.25 : 1.0) / rivals));
        loss[i] = (odds[i] - Real(squares[i])) / Real(rivals);
    }
}

extern "C" void coins_float32(const float *odds, const double *squares, const double *mass, const double *mass_squares,
                              float *loss, float *concentration, float *free_gap, int64_t size, double rivals) {
    coins(odds, squares, mass, mass_squares, loss, concentration, free_gap, size, rivals);
}
extern "C" void coins_float64(const double *odds, const double *squares, const double *mass, const double *mass_squares,
                              double *loss, double *concentration, double *free_gap, int64_t size, double rivals) {
    coins(odds, squares, mass, mass_squares, loss, concentration, free_gap, size, rivals);
}
