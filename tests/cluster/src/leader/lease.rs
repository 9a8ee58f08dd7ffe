//! Everything that happened to a Lease, as a watch tells it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::Value;

use super::{LEASE, LONGEST_WAIT, SLACK};
use crate::watch::Watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub holder: String,
    pub seconds: i64,
    pub transitions: i64,
    pub acquired: Timestamp,
    pub renewed: Timestamp,
    pub version: String,
}

impl Record {
    fn of(lease: &Value) -> Result<Self> {
        let spec = &lease["spec"];
        let text = |value: &Value, what: &str| {
            let text = value.as_str().map(str::to_owned);
            text.with_context(|| format!("no {what} in {lease}"))
        };
        let number = |name: &str| {
            let number = spec[name].as_i64();
            number.with_context(|| format!("no {name} in {lease}"))
        };
        let time = |name: &str| -> Result<Timestamp> {
            let time = text(&spec[name], name)?.parse();
            time.with_context(|| format!("{name} of {lease}"))
        };
        Ok(Self {
            holder: text(&spec["holderIdentity"], "holderIdentity")?,
            seconds: number("leaseDurationSeconds")?,
            transitions: number("leaseTransitions")?,
            acquired: time("acquireTime")?,
            renewed: time("renewTime")?,
            version: text(&lease["metadata"]["resourceVersion"], "resourceVersion")?,
        })
    }
}

#[derive(Debug)]
pub struct History {
    watch: Watch,
    pub records: Vec<Record>,
}

impl History {
    /// `watch` is one on the Lease, opened before there was one.
    pub fn new(watch: Watch) -> Self {
        Self {
            watch,
            records: Vec::new(),
        }
    }

    /// Reads on until the records have what is wanted.
    pub fn until(
        &mut self,
        what: &str,
        within: Duration,
        mut wanted: impl FnMut(&[Record]) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + within;
        while !wanted(&self.records) {
            let events = self.watch.events(deadline)?;
            if events.is_empty() {
                let last = self.records.last();
                bail!("{what}: not within {within:?}; the Lease was last {last:?}");
            }
            for event in events {
                let kind = event["type"].as_str().unwrap_or_default();
                ensure!(
                    matches!(kind, "ADDED" | "MODIFIED"),
                    "the watch told {event}"
                );
                self.records.push(Record::of(&event["object"])?);
            }
        }
        Ok(())
    }

    /// Until the lease's holder has renewed so often after this record.
    pub fn until_renewed(&mut self, times: usize, within: Duration) -> Result<()> {
        let from = self.records.len();
        self.until("the lease is renewed", within, |records| {
            records.len() >= from + times
        })
    }
}

/// Checks each record against the one before it, and gives how long those took who had to wait for a lease to expire.
/// `error` is how far the wall clock, which the times are of, may have been off.
pub fn check(records: &[Record], error: Duration) -> Result<Vec<Duration>> {
    let mut waits = Vec::new();
    for pair in records.windows(2) {
        let [old, new] = pair else { continue };
        let wait = new.renewed.duration_since(old.renewed).as_secs_f64();
        ensure!(
            wait + error.as_secs_f64() >= 0.0,
            "renewTime went back: {old:?}, then {new:?}"
        );
        let wait = Duration::from_secs_f64(wait.max(0.0));
        let is_released = new.holder.is_empty();
        if new.holder == old.holder {
            ensure!(
                new.acquired == old.acquired,
                "acquireTime changed with a renewal: {old:?}, then {new:?}"
            );
        } else {
            ensure!(
                new.acquired == new.renewed,
                "acquireTime of a new holder: {new:?}"
            );
        }
        let is_taken = !is_released && new.holder != old.holder;
        ensure!(
            new.transitions == old.transitions + i64::from(is_taken),
            "leaseTransitions: {old:?}, then {new:?}"
        );
        if is_taken && !old.holder.is_empty() {
            ensure!(
                wait + error >= LEASE,
                "taken {wait:?} after its last renewal, before it had expired: {old:?}, then {new:?}"
            );
            let latest = LEASE + 2 * LONGEST_WAIT + SLACK + error;
            ensure!(
                wait <= latest,
                "taken only {wait:?} after its last renewal, later than {latest:?}"
            );
            waits.push(wait);
        }
    }
    Ok(waits)
}

/// What the Lease said over time, renewals left out: holder, seconds, transitions.
pub fn changes(records: &[Record]) -> Vec<String> {
    let mut changes: Vec<String> = records
        .iter()
        .map(|record| {
            let holder = match record.holder.as_str() {
                "" => "nobody",
                holder => holder,
            };
            format!("{holder} {} s {}", record.seconds, record.transitions)
        })
        .collect();
    changes.dedup();
    changes
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn record(holder: &str, transitions: i64, acquired: i64, renewed: i64) -> Record {
        let at = |millis| Timestamp::UNIX_EPOCH + SignedDuration::from_millis(millis);
        Record {
            holder: holder.to_owned(),
            seconds: 6,
            transitions,
            acquired: at(acquired),
            renewed: at(renewed),
            version: String::new(),
        }
    }

    #[test]
    fn a_fine_history() {
        let records = [
            record("a", 0, 0, 0),
            record("a", 0, 0, 500),
            record("b", 1, 7000, 7000),
            record("", 1, 7100, 7100),
            record("c", 2, 7200, 7200),
        ];
        let waits = check(&records, Duration::ZERO).unwrap();
        assert_eq!(waits, [Duration::from_millis(6500)]);
        let changes = changes(&records);
        let expected = ["a 6 s 0", "b 6 s 1", "nobody 6 s 1", "c 6 s 2"];
        assert_eq!(changes, expected);
    }

    #[test]
    fn what_must_not_happen() {
        let refused = |old: Record, new: Record, expected: &str| {
            let error = check(&[old, new], Duration::ZERO).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let held = || record("a", 0, 0, 1000);
        refused(held(), record("b", 1, 4000, 4000), "before it had expired");
        refused(held(), record("b", 1, 60_000, 60_000), "later than");
        refused(held(), record("b", 0, 8000, 8000), "leaseTransitions");
        refused(held(), record("b", 1, 0, 8000), "of a new holder");
        refused(held(), record("a", 1, 0, 1500), "leaseTransitions");
        refused(held(), record("a", 0, 1500, 1500), "with a renewal");
        refused(held(), record("a", 0, 0, 500), "went back");
        refused(held(), record("", 1, 1500, 1500), "leaseTransitions");
    }

    #[test]
    fn a_clock_that_was_set_is_no_fault_of_theirs() {
        let error = Duration::from_secs(2);
        let back = [record("a", 0, 0, 1000), record("a", 0, 0, 500)];
        check(&back, error).unwrap();
        let early = [record("a", 0, 0, 1000), record("b", 1, 5500, 5500)];
        check(&early, error).unwrap();
        check(&early, Duration::from_secs(1)).unwrap_err();
    }
}
