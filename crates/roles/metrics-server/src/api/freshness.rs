//! How old the figures are that are shown.

use std::sync::Arc;

use parking_lot::Mutex;

use plimsoll_metrics::Histogram;

/// Clones count the same.
#[derive(Debug, Clone)]
pub struct Freshness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bounds: Arc<[f64]>,
    seen: Mutex<Option<Histogram>>,
}

/// Those of one piece of a list, counted without a lock.
#[derive(Debug)]
pub struct Ages {
    now: i64,
    seen: Histogram,
}

impl Default for Freshness {
    fn default() -> Self {
        let bounds = (0..20).scan(1.0, |bound, _| {
            let this = *bound;
            *bound *= 1.364;
            Some(this)
        });
        let bounds = bounds.collect::<Vec<_>>().into();
        Self(Arc::new(Shared {
            bounds,
            seen: Mutex::default(),
        }))
    }
}

impl Freshness {
    pub fn ages(&self) -> Ages {
        Ages {
            now: jiff::Timestamp::now().as_nanosecond() as i64,
            seen: Histogram::new(Arc::clone(&self.0.bounds)),
        }
    }

    pub fn add(&self, ages: Ages) {
        if ages.seen.count() == 0 {
            return;
        }
        let mut seen = self.0.seen.lock();
        match seen.as_mut() {
            Some(seen) => seen.merge(&ages.seen),
            None => *seen = Some(ages.seen),
        }
    }

    /// `None`: nothing was shown yet.
    pub fn seen(&self) -> Option<Histogram> {
        self.0.seen.lock().clone()
    }
}

impl Ages {
    pub fn observe(&mut self, at: i64) {
        self.seen.observe((self.now - at) as f64 / 1e9);
    }
}
