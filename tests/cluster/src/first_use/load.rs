//! Whether the machine had much to do meanwhile: only a quiet one can be held to seconds.

use std::fs;
use std::time::Duration;

/// Of the time, how much somebody may have waited for the machine.
const LOW: f64 = 0.05;
/// `USER_HZ`, which is the same everywhere that this runs.
const TICKS: f64 = 100.0;

/// Seconds that somebody has waited for the processors, the disks or memory, or that the host took. `None`: the kernel
/// does not say.
#[derive(Debug, Clone, Copy)]
pub struct Load(Option<f64>);

impl Load {
    pub fn now() -> Self {
        let waited = ["cpu", "io", "memory"].map(|what| {
            let text = fs::read_to_string(format!("/proc/pressure/{what}")).ok()?;
            some_total(&text)
        });
        let stolen = fs::read_to_string("/proc/stat").ok();
        let stolen = stolen.and_then(|text| stolen_ticks(&text));
        let waited: Option<f64> = waited.into_iter().sum();
        Self(
            waited
                .zip(stolen)
                .map(|(waited, stolen)| waited / 1e6 + stolen / TICKS),
        )
    }

    /// Since then, which was so long ago.
    pub fn was_low(self, ago: Duration) -> bool {
        match (self.0, Self::now().0) {
            (Some(before), Some(after)) => after - before <= LOW * ago.as_secs_f64(),
            _ => false,
        }
    }
}

fn some_total(pressure: &str) -> Option<f64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.parse().ok()
}

fn stolen_ticks(stat: &str) -> Option<f64> {
    stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let pressure = "some avg10=0.00 avg60=1.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n";
        assert_eq!(some_total(pressure), Some(123.0));
        assert_eq!(stolen_ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1"), Some(8.0));
        let before = Load::now();
        assert!(
            Load(before.0.map(|waited| waited + 1e9)).was_low(Duration::from_secs(1))
                == before.0.is_some()
        );
        assert!(!Load(None).was_low(Duration::from_secs(1)));
    }
}
