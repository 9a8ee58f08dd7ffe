//! The samples of one series that are in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::chunk::{Chunk, Open};
use crate::journal::Written;
use crate::store::Sample;

#[derive(Debug)]
pub struct Series {
    pub key: Arc<str>,
    /// How many steps of precision a unit has: values are kept as whole numbers of steps. 0: they are kept as they are.
    pub steps: f64,
    pub written: Written,
    /// The newest sample's time, or the store's when the series was made.
    pub touched: i64,
    open: Option<Open>,
    closed: VecDeque<Arc<Chunk>>,
    /// Samples that came after later ones, sorted by time.
    late: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    InOrder,
    Late,
}

/// What is sealed of a series: its own samples up to a time.
#[derive(Debug)]
pub struct Part {
    pub key: Arc<str>,
    pub steps: f64,
    pub chunks: Vec<Arc<Chunk>>,
    pub late: Vec<Sample>,
}

impl Series {
    pub fn new(key: Arc<str>, steps: f64, now: i64) -> Self {
        Self {
            key,
            steps,
            written: Written::default(),
            touched: now,
            open: None,
            closed: VecDeque::new(),
            late: Vec::new(),
        }
    }

    /// A value as it is kept.
    pub fn scaled(&self, value: f64) -> f64 {
        if self.steps == 0.0 {
            value
        } else {
            // Adding 0 turns −0 into 0.
            (value * self.steps).round() + 0.0
        }
    }

    /// `window` is how long blocks are: no chunk is part of two.
    pub fn append(&mut self, at: i64, scaled: f64, window: i64) -> Placed {
        self.touched = self.touched.max(at);
        match &mut self.open {
            None => {
                if self
                    .closed
                    .back()
                    .is_some_and(|chunk| chunk.last_at() >= at)
                {
                    self.insert_late(at, scaled);
                    return Placed::Late;
                }
                self.open = Some(Open::new(at, scaled));
            }
            Some(open) if at <= open.last_at() => {
                self.insert_late(at, scaled);
                return Placed::Late;
            }
            Some(open)
                if open.is_full()
                    || open.first_at().div_euclid(window) != at.div_euclid(window) =>
            {
                let full = std::mem::replace(open, Open::new(at, scaled));
                self.closed.push_back(Arc::new(full.close()));
            }
            Some(open) => open.push(at, scaled),
        }
        Placed::InOrder
    }

    fn insert_late(&mut self, at: i64, scaled: f64) {
        let sample = Sample { at, value: scaled };
        match self.late.binary_search_by_key(&at, |late| late.at) {
            Ok(same) => self.late[same] = sample,
            Err(place) => self.late.insert(place, sample),
        }
    }

    /// Appends the samples from `from` up to `to`, both included, in the order of time.
    pub fn read(&self, from: i64, to: i64, out: &mut Vec<Sample>) {
        let begin = out.len();
        let steps = self.steps;
        let mut visit = |at: i64, value: f64| {
            if at >= from && at <= to {
                let value = unscaled(value, steps);
                out.push(Sample { at, value });
            }
        };
        for chunk in &self.closed {
            if chunk.last_at() >= from && chunk.first_at() <= to {
                chunk.decode(&mut visit);
            }
        }
        if let Some(open) = &self.open
            && open.last_at() >= from
            && open.first_at() <= to
        {
            open.decode(&mut visit);
        }
        if !self.late.is_empty() {
            let late = self.late.iter().map(|late| Sample {
                at: late.at,
                value: unscaled(late.value, steps),
            });
            merge_late(
                out,
                begin,
                late.filter(|late| late.at >= from && late.at <= to),
            );
        }
    }

    /// Everything before `before`, for a block. An open chunk that has such samples is closed.
    pub fn part(&mut self, before: i64) -> Option<Part> {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.first_at() < before)
            && let Some(open) = self.open.take()
        {
            self.closed.push_back(Arc::new(open.close()));
        }
        let chunks: Vec<Arc<Chunk>> = self
            .closed
            .iter()
            .filter(|chunk| chunk.first_at() < before)
            .cloned()
            .collect();
        let late: Vec<Sample> = self
            .late
            .iter()
            .copied()
            .filter(|late| late.at < before)
            .collect();
        (!chunks.is_empty() || !late.is_empty()).then(|| Part {
            key: self.key.clone(),
            steps: self.steps,
            chunks,
            late,
        })
    }

    /// Drops what is older than `before`, and says how many samples that were; a chunk that is partly newer stays.
    pub fn forget(&mut self, before: i64) -> usize {
        let mut dropped = 0;
        while let Some(chunk) = self.closed.pop_front_if(|chunk| chunk.last_at() < before) {
            dropped += usize::from(chunk.count());
        }
        let late = self.late.len();
        self.late.retain(|late| late.at >= before);
        dropped += late - self.late.len();
        if let Some(open) = self.open.take_if(|open| open.last_at() < before) {
            dropped += usize::from(open.count());
        }
        dropped
    }

    pub fn oldest_chunk_end(&self) -> Option<i64> {
        self.closed.front().map(|chunk| chunk.last_at())
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.closed.is_empty() && self.late.is_empty()
    }

    /// About how much memory its samples take.
    pub fn bytes(&self) -> usize {
        let closed: usize = self.closed.iter().map(|chunk| chunk.bytes()).sum();
        let open = self.open.as_ref().map_or(0, Open::bytes);
        closed + open + self.late.len() * size_of::<Sample>()
    }
}

impl Part {
    /// Its samples before `before` and not before `from`, as they are kept, in the order of time.
    pub fn columns(
        &self,
        from: i64,
        before: i64,
        scratch: &mut Vec<Sample>,
        times: &mut Vec<i64>,
        values: &mut Vec<f64>,
    ) {
        scratch.clear();
        times.clear();
        values.clear();
        for chunk in &self.chunks {
            chunk.decode(|at, value| {
                if at >= from && at < before {
                    scratch.push(Sample { at, value });
                }
            });
        }
        let late = self.late.iter().copied();
        merge_late(
            scratch,
            0,
            late.filter(|late| late.at >= from && late.at < before),
        );
        times.extend(scratch.iter().map(|sample| sample.at));
        values.extend(scratch.iter().map(|sample| sample.value));
    }
}

pub fn unscaled(value: f64, steps: f64) -> f64 {
    if steps == 0.0 { value } else { value / steps }
}

/// Puts late samples among those from `begin` on; of two of the same time the late one was said last, and counts.
fn merge_late(samples: &mut Vec<Sample>, begin: usize, late: impl Iterator<Item = Sample>) {
    let before = samples.len();
    samples.extend(late);
    if samples.len() == before {
        return;
    }
    // Stable: late ones stay behind those of the same time.
    samples[begin..].sort_by_key(|sample| sample.at);
    let mut kept = begin;
    for next in begin..samples.len() {
        if kept > begin && samples[kept - 1].at == samples[next].at {
            kept -= 1;
        }
        samples[kept] = samples[next];
        kept += 1;
    }
    samples.truncate(kept);
}
