//! Two programs that took turns: the ratio of what they cost, and how sure that is.

/// A program is worse when the whole interval lies above this.
pub const WORSE: f64 = 1.03;

/// What one kind of work cost in each turn, by both.
#[derive(Debug, Clone)]
pub struct Figure {
    pub name: String,
    pub new: Vec<f64>,
    pub old: Vec<f64>,
}

/// Figures in the order in which they first came.
#[derive(Debug, Default)]
pub struct Table(Vec<Figure>);

impl Table {
    /// What it cost in a turn of the new program, or of the old one.
    pub fn add(&mut self, name: &str, is_new: bool, cost: f64) {
        let at = self.0.iter().position(|figure| figure.name == name);
        let at = at.unwrap_or_else(|| {
            self.0.push(Figure {
                name: name.to_owned(),
                new: Vec::new(),
                old: Vec::new(),
            });
            self.0.len() - 1
        });
        match is_new {
            true => self.0[at].new.push(cost),
            false => self.0[at].old.push(cost),
        }
    }

    /// Prints it. Gives the names of what is worse with the new program.
    pub fn judge(&self) -> Vec<&str> {
        println!(
            "{:<44} {:>10} {:>10} {:>7}  95 % interval of the ratio",
            "", "new", "old", "ratio"
        );
        let mut worse = Vec::new();
        for figure in &self.0 {
            let (ratio, low, high) = ratio(&figure.new, &figure.old);
            let verdict = if low > WORSE { "WORSE" } else { "" };
            println!(
                "{:<44} {:>10.2} {:>10.2} {ratio:>7.3}  {low:.3} to {high:.3} {verdict}",
                figure.name,
                mean(&figure.new),
                mean(&figure.old),
            );
            if low > WORSE {
                worse.push(figure.name.as_str());
            }
        }
        worse
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The ratio of two that took turns, and the ends of its confidence interval of 95 %: of the logarithms of the ratios of
/// each round, because ratios multiply.
pub fn ratio(new: &[f64], old: &[f64]) -> (f64, f64, f64) {
    let logs: Vec<f64> = new
        .iter()
        .zip(old)
        .map(|(new, old)| (new / old).ln())
        .collect();
    let middle = mean(&logs);
    let count = logs.len() as f64;
    let spread = logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>();
    let error = (spread / (count - 1.0).max(1.0) / count).sqrt();
    let wide = students_t(logs.len().saturating_sub(1)) * error;
    (middle.exp(), (middle - wide).exp(), (middle + wide).exp())
}

/// Student's t for 95 %, both sides.
fn students_t(degrees: usize) -> f64 {
    const TABLE: [f64; 31] = [
        12.706, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
        2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
        2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    TABLE.get(degrees).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_knows_how_sure_it_is() {
        let (middle, low, high) = ratio(&[2.0; 12], &[1.0; 12]);
        assert!(
            [middle, low, high]
                .iter()
                .all(|one| (one - 2.0).abs() < 1e-9)
        );
        let new: Vec<f64> = (0..12).map(|n| 1.0 + f64::from(n % 2) * 0.1).collect();
        let (middle, low, high) = ratio(&new, &[1.0; 12]);
        assert!((middle - 1.1_f64.sqrt()).abs() < 1e-9);
        // By hand: each of 12 logarithms is 0.04766 off, t of 11 degrees.
        let wide = 2.201 * (12.0 * 0.047_655_f64.powi(2) / 11.0 / 12.0).sqrt();
        assert!((low - middle * (-wide).exp()).abs() < 1e-4, "{low}");
        assert!((high - middle * wide.exp()).abs() < 1e-4, "{high}");
        assert!(students_t(100) < students_t(30) && students_t(30) < students_t(2));
    }

    #[test]
    fn only_what_is_surely_worse_is_named() {
        let mut table = Table::default();
        for round in 0..12 {
            let noise = 1.0 + f64::from(round % 3) * 0.2;
            table.add("worse", true, 1.2);
            table.add("worse", false, 1.0);
            table.add("noisy", true, noise);
            table.add("noisy", false, 1.2);
        }
        assert_eq!(table.judge(), ["worse"]);
    }
}
