//! Reads the usage of marked cgroups between two readings of everything.

use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll_host::cgroup::{Cfs, Cpu, NumaPages};
use plimsoll_host::{Clock, HostError};

use super::Sampler;
use super::collect::Collector;
use super::tracked::Tracked;
use crate::store::UsageSample;
use crate::{Group, GroupSet};

impl Sampler {
    /// Reads the usage of what is marked when it is time, and where it was not read with everything just now.
    pub(super) fn refresh_usage(&mut self, now: Duration) {
        let Some(every) = self.plan.usage.filter(|_| now >= self.usage_due) else {
            return;
        };
        // Half a beat early, so that a round which began a little late does not skip a beat.
        let wait = every
            .mul_f64(self.budget.stretch())
            .saturating_sub(every / 2);
        self.usage_due = self.align_to_slot(now + wait);
        let pressure = self.plan.pressure.filter(|_| now >= self.pressure_due);
        if let Some(every) = pressure {
            // The same half beat early.
            let wait = every.saturating_sub(self.plan.shortest() / 2);
            self.pressure_due = self.align_to_slot(now + wait);
        }
        let clock = &self.observer.clock;
        for tracked in self.tracked.iter_mut().flatten() {
            if tracked.sampled_at == Some(now) {
                continue;
            }
            if tracked.is_root() {
                self.collector.read_machine(tracked, None, now, clock);
            }
            if tracked.container.is_marked() {
                let pressure = pressure.is_some();
                self.collector.read_usage(tracked, pressure, now, clock);
            }
        }
    }
}

/// Lists of pages of a cgroup that does not run are read again after this time: the kernel may have reclaimed some.
const LISTS_OLDEST: Duration = Duration::from_secs(10);

/// The reading before, as far as it decides what has to be read now.
#[derive(Debug, Clone, Copy)]
struct Before {
    cpu_ns: u64,
    cfs: Cfs,
    /// CPU and memory were read then.
    whole: bool,
}

impl Before {
    fn of(usage: &UsageSample) -> Self {
        Self {
            cpu_ns: usage.cpu_ns,
            cfs: usage.cfs,
            whole: usage.has(Group::Cpu) && usage.has(Group::Memory),
        }
    }
}

impl Collector {
    fn read_usage(&mut self, tracked: &mut Tracked, pressure: bool, now: Duration, clock: &Clock) {
        let at = clock.now();
        let before = Before::of(&tracked.container.lock().usage);
        let (reader, buf) = (&mut tracked.reader, &mut self.buf);
        let mut groups = GroupSet::EMPTY;
        let mut errors: Vec<HostError> = Vec::new();
        let mut note = |group, outcome: Result<bool, HostError>| match outcome {
            Ok(_) => groups = groups.with(group),
            Err(error) => errors.push(error),
        };
        let mut scratch = std::mem::take(&mut self.usage);
        // Keeps the room of its list.
        let mut cpu = Cpu {
            per_cpu_ns: std::mem::take(&mut self.sample.cpu.per_cpu_ns),
            cfs: before.cfs,
            ..Cpu::default()
        };
        if self.wanted.cpu {
            let time = reader.cpu_time(buf, &mut cpu);
            // Without a quota there are no periods. That it has got one is seen by the next reading of everything.
            let throttled = match before.cfs.periods > 0 || !before.whole {
                true => reader.throttling(buf, &mut cpu),
                false => Ok(()),
            };
            // What has neither run since nor wanted to has allocated nothing.
            let known = matches!((&time, &throttled), (Ok(true), Ok(())));
            let ran = !known || (cpu.total_ns, cpu.cfs) != (before.cpu_ns, before.cfs);
            let young = now.saturating_sub(tracked.lists_read) < LISTS_OLDEST;
            if !ran && young && before.whole && !pressure {
                self.sample.cpu.per_cpu_ns = cpu.per_cpu_ns;
                self.usage = scratch;
                self.counters.usage.fetch_add(1, Ordering::Relaxed);
                tracked.container.lock().usage.at = at;
                return;
            }
            note(Group::Cpu, throttled.and(time));
        }
        (scratch.cpu_ns, scratch.cfs) = (cpu.total_ns, cpu.cfs);
        self.sample.cpu.per_cpu_ns = cpu.per_cpu_ns;
        if self.wanted.memory {
            note(Group::Memory, reader.memory_usage(buf, &mut scratch.memory));
        }
        tracked.lists_read = now;
        // The scratch was another container's.
        clear(&mut scratch.numa);
        if reader.has_numa()
            && let Err(error) = reader.numa(buf, &mut scratch.numa)
        {
            clear(&mut scratch.numa);
            errors.push(error);
        }
        let psi = match pressure {
            true => reader.pressure(buf).map(Some),
            false => Ok(None),
        };
        let psi = psi.unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        if errors.iter().any(HostError::is_gone) {
            // It ended, or a controller was switched: the next reading of everything looks into that.
            self.usage = scratch;
            return;
        }
        for error in &errors {
            self.warn_limited(tracked, now, error);
        }
        self.counters.usage.fetch_add(1, Ordering::Relaxed);
        scratch.at = at;
        scratch.groups = groups.intersection(self.groups);
        let mut state = tracked.container.lock();
        scratch.psi = psi.map_or(state.usage.psi, |(cpu, memory, io)| [cpu, memory, io]);
        std::mem::swap(&mut state.usage, &mut scratch);
        drop(state);
        self.usage = scratch;
    }

    /// A reading of everything is one of usage, too.
    pub(super) fn usage_of_sample(&self, usage: &mut UsageSample) {
        let sample = &self.sample;
        usage.at = sample.at;
        usage.groups = sample.groups;
        (usage.cpu_ns, usage.cfs) = (sample.cpu.total_ns, sample.cpu.cfs);
        usage.memory = sample.memory;
        usage.numa.clone_from(&sample.numa);
        usage.psi = [sample.cpu_psi, sample.memory_psi, sample.io_psi];
    }
}

fn clear(numa: &mut NumaPages) {
    numa.own.clear();
    numa.hierarchical.clear();
}
