//! Why something is wanted. Metric labels, event reasons, sentences of the journal and JSON are made of it.

use serde::Serialize;

/// Figures that a reason can carry.
const FIGURES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reason {
    /// A stable name in snake case, `be_cpu_suppress`.
    pub code: &'static str,
    /// Names and values that led to it, such as `("node_cpu_percent", 71.5)`. Names are empty where there are fewer.
    pub figures: [(&'static str, f64); FIGURES],
    /// The field of the NodeSLO, or the annotation, that asks for it.
    pub policy: Option<&'static str>,
}

impl Reason {
    pub const fn new(code: &'static str) -> Self {
        Self {
            code,
            figures: [("", 0.0); FIGURES],
            policy: None,
        }
    }

    #[must_use]
    pub const fn by(mut self, policy: &'static str) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Adds a figure. One too many is left out.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        if let Some(free) = self.figures.iter_mut().find(|(name, _)| name.is_empty()) {
            *free = (name, value);
        }
        self
    }

    pub fn figures(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.figures
            .iter()
            .copied()
            .filter(|(name, _)| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_beyond_its_room_are_left_out() {
        let names = ["a", "b", "c", "d", "e"];
        let reason = names
            .iter()
            .fold(Reason::new("x"), |reason, name| reason.with(name, 1.0));
        assert_eq!(reason.figures().count(), 4);
    }
}
