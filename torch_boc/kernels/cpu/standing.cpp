// How a given class stands among the others of its row; core/standing.py has the formulas.
#include "coins.h"
#include "extras.h"
#include "sums.h"

struct Standing {
    double lost;
    int64_t ahead;
};

// The chance that the given class loses against a class that is so far above it, for a vector of them.
template <typename Of> static inline typename Of::Vector chance_to_lose(typename Of::Vector above) {
    typedef typename Of::Vector Vector;
    typedef typename Of::Real Real;
    const Vector loses = Of::share(Of::scaled_exp(above > Real(0) ? -above : above));
    return above > Real(0) ? Real(1) - loses : loses;
}

// A row whose classes lie side by side, at least a vector of them. Those that are equal to the given class are counted,
// because its own coin must not be among the small ones that are added up.
template <typename Logit>
static Standing standing_of(const typename Logit::type *row, int64_t classes, typename Logit::Real own) {
    typedef typename Logit::Vector Vector;
    typedef typename Logit::Real Real;
    LongSum<Vector> sum;
    typename Logit::Mask equal = {}, ahead = {};
    over_row<Logit>(row, classes, Real(NAN), [&](Vector z) {
        const Vector above = z - own;
        sum.add((above < Real(0)) | (above > Real(0)) ? chance_to_lose<Logit>(above) : Vector{});
        equal -= above == Real(0), ahead -= above > Real(0);
    });
    return {double(sum_of(sum.total())) + 0.5 * double(sum_of(equal) - 1), int64_t(sum_of(ahead))};
}

// What is no number in each dtype: a vector's place without a class.
static inline void put_nan(float &to) { to = NAN; }
static inline void put_nan(double &to) { to = NAN; }
static inline void put_nan(uint16_t &to) { to = 0x7fff; }

template <typename Logit>
static void standings(const Logits &logits, const int64_t *index, int32_t threads, double *lost, int64_t *ahead) {
    typedef typename Logit::type Type;
    constexpr int64_t lanes = Logit::lanes;
    const int64_t classes = logits.classes;
    over_rows(logits.rows, 1, threads, [&](int64_t first, int64_t last, int32_t) {
        Type padded[lanes];  // a row that is shorter than a vector
        for (int64_t j = 0; j < lanes; j++) put_nan(padded[j]);
        for (int64_t i = first; i < last; i++) {
            const Type *row = static_cast<const Type *>(logits.data) + logits.start(i);
            const int64_t place = index[i] < 0 ? 0 : index[i] < classes ? index[i] : classes - 1;
            const auto own = typename Logit::Real(Logit::value(row[place]));
            if (classes < lanes) memcpy(padded, row, sizeof *row * size_t(classes));
            const bool is_short = classes < lanes;
            const Standing found = standing_of<Logit>(is_short ? padded : row, is_short ? lanes : classes, own);
            lost[i] = found.lost, ahead[i] = found.ahead;
        }
    });
}

// The classes of each row lie side by side. An index that is no class is taken for the nearest one.
BOC_EXPORT void boc_standing(BOC_LOGITS, const int64_t *index, double *lost, int64_t *ahead) {
    BOC_DESCRIBED(0);
    switch (dtype) {
    case 0: return standings<Float32>(logits, index, threads, lost, ahead);
    case 1: return standings<BFloat16>(logits, index, threads, lost, ahead);
    case 2: return standings<Float16>(logits, index, threads, lost, ahead);
    default: return standings<Float64>(logits, index, threads, lost, ahead);
    }
}
