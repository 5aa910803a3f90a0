// Loss and concentration from the sums of each row; functional/coins.py and functional/bounds.py say what they are.
#include <cfloat>
#include <cmath>
#include <cstdint>

template <typename Real>
static void coins(const Real *odds, const double *squares, Real *loss, Real *concentration, int64_t size,
                  double rivals) {
#pragma omp parallel for simd schedule(static) if (size > 4096)
    for (int64_t i = 0; i < size; i++) {
        const double against = odds[i], whole = std::floor(against), rest = against - whole;
        const double even = against * against / (rivals + against);
        const double room = whole * 0.5 + rest * rest / (1.0 + rest) - even;
        const bool empty = room <= 4.0 * DBL_EPSILON * even;
        double share = (squares[i] - even) / (empty ? 1.0 : room);
        share = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
        concentration[i] = Real(empty ? 0.0 : share);
        loss[i] = (odds[i] - Real(squares[i])) / Real(rivals);
    }
}

extern "C" void coins_float32(const float *odds, const double *squares, float *loss, float *concentration, int64_t size,
                              double rivals) {
    coins(odds, squares, loss, concentration, size, rivals);
}
extern "C" void coins_float64(const double *odds, const double *squares, double *loss, double *concentration,
                              int64_t size, double rivals) {
    coins(odds, squares, loss, concentration, size, rivals);
}
