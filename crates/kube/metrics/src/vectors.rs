//! Counters and histograms by the values of their labels.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Exposition, Histogram};

/// Series that differ in the values of `N` labels. There are few of each family, so looking is as good as hashing.
#[derive(Debug)]
struct Series<const N: usize, T> {
    /// In the order of the alphabet, as exposition has them.
    labels: [&'static str; N],
    all: Mutex<Vec<([Box<str>; N], T)>>,
}

impl<const N: usize, T> Series<N, T> {
    fn new(labels: [&'static str; N]) -> Self {
        Self {
            labels,
            all: Mutex::default(),
        }
    }

    fn with(&self, values: [&str; N], new: impl FnOnce() -> T, change: impl FnOnce(&mut T)) {
        let mut all = self.all.lock();
        let is_it = |known: &[Box<str>; N]| known.iter().zip(values).all(|(a, b)| **a == *b);
        let place = match all.iter().position(|(known, _)| is_it(known)) {
            Some(place) => place,
            None => {
                all.push((values.map(Box::from), new()));
                all.len() - 1
            }
        };
        change(&mut all[place].1);
    }

    /// In the order of the values; says nothing of families without series.
    fn write(
        &self,
        page: &mut Exposition,
        head: Head<'_>,
        mut show: impl FnMut(&mut Exposition, Pairs<'_>, &T),
    ) {
        let mut all = self.all.lock();
        if all.is_empty() {
            return;
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        let Head(name, kind, help) = head;
        page.family(name, kind, help);
        for (values, value) in all.iter() {
            let pairs: Vec<(&str, &str)> = self
                .labels
                .iter()
                .zip(values)
                .map(|(label, value)| (*label, &**value))
                .collect();
            show(page, &pairs, value);
        }
    }
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Name, type and help of a family.
struct Head<'a>(&'a str, &'a str, &'a str);

#[derive(Debug)]
pub struct CounterVec<const N: usize>(Series<N, u64>);

impl<const N: usize> CounterVec<N> {
    pub fn new(labels: [&'static str; N]) -> Self {
        Self(Series::new(labels))
    }

    pub fn count(&self, values: [&str; N]) {
        self.0.with(values, || 0, |count| *count += 1);
    }

    pub fn write(&self, page: &mut Exposition, name: &str, help: &str) {
        let head = Head(name, "counter", help);
        self.0.write(page, head, |page, pairs, count| {
            page.sample(name, pairs, *count as f64);
        });
    }
}

#[derive(Debug)]
pub struct HistogramVec<const N: usize> {
    series: Series<N, Histogram>,
    bounds: Arc<[f64]>,
}

impl<const N: usize> HistogramVec<N> {
    pub fn new(labels: [&'static str; N], bounds: impl Into<Arc<[f64]>>) -> Self {
        Self {
            series: Series::new(labels),
            bounds: bounds.into(),
        }
    }

    pub fn observe(&self, values: [&str; N], value: f64) {
        let new = || Histogram::new(Arc::clone(&self.bounds));
        self.series.with(values, new, |one| one.observe(value));
    }

    pub fn write(&self, page: &mut Exposition, name: &str, help: &str) {
        let head = Head(name, "histogram", help);
        self.series.write(page, head, |page, pairs, histogram| {
            page.histogram(name, pairs, histogram);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_in_order() {
        let counters = CounterVec::new(["code", "host"]);
        let mut page = Exposition::default();
        counters.write(&mut page, "c", "how many");
        for values in [["500", "a"], ["200", "b"], ["200", "a"], ["200", "b"]] {
            counters.count(values);
        }
        counters.write(&mut page, "c", "how many");
        let histograms = HistogramVec::new(["verb"], [0.5]);
        histograms.observe(["GET"], 0.1);
        histograms.write(&mut page, "h", "how long");
        assert_eq!(
            page.finish(),
            "# HELP c how many\n# TYPE c counter\nc{code=\"200\",host=\"a\"} 1\nc{code=\"200\",host=\"b\"} 2\n\
             c{code=\"500\",host=\"a\"} 1\n# HELP h how long\n# TYPE h histogram\nh_bucket{verb=\"GET\",le=\"0.5\"} 1\n\
             h_bucket{verb=\"GET\",le=\"+Inf\"} 1\nh_sum{verb=\"GET\"} 0.1\nh_count{verb=\"GET\"} 1\n"
        );
    }
}
