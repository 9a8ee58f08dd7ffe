//! Time that processes ran and waited for a CPU, summed over a cgroup.

use std::collections::HashMap;

use super::Procfs;
use crate::parse::{self, Malformed};
use crate::{ReadBuf, Result};

/// `/proc/PID/schedstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Schedstat {
    pub run_ns: u64,
    /// Runnable but waiting.
    pub wait_ns: u64,
    pub slices: u64,
}

impl Schedstat {
    fn add(&mut self, other: Self) {
        self.run_ns = self.run_ns.saturating_add(other.run_ns);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.slices = self.slices.saturating_add(other.slices);
    }
}

pub fn parse_schedstat(text: &[u8]) -> Result<Schedstat, Malformed> {
    let text = parse::whole_lines(text)?;
    let line = parse::trim(text);
    let mut fields = parse::words(line).map(parse::u64);
    let mut next = || {
        fields
            .next()
            .flatten()
            .ok_or_else(|| Malformed::at(0, line))
    };
    Ok(Schedstat {
        run_ns: next()?,
        wait_ns: next()?,
        slices: next()?,
    })
}

/// A sum over changing processes that never falls.
///
/// The kernel forgets a process's figures when it ends; the sum keeps the last that were seen. A process that cannot
/// be read this time counts with its last figures too, so one failure is not a counter reset.
#[derive(Debug, Default)]
pub struct SchedstatSum {
    live: HashMap<u32, Seen>,
    ended: Schedstat,
    round: u64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    last: Schedstat,
    round: u64,
}

impl SchedstatSum {
    /// Reads all `pids` and returns the sum. Errors of single processes are passed over.
    pub fn read(&mut self, procfs: &Procfs, pids: &[u32], buf: &mut ReadBuf) -> Schedstat {
        self.update(pids, |pid| {
            procfs
                .parse(pid, "schedstat", buf, parse_schedstat)
                .ok()
                .flatten()
        })
    }

    /// `figures` answers for one process, `None` where it cannot.
    pub fn update(
        &mut self,
        pids: &[u32],
        mut figures: impl FnMut(u32) -> Option<Schedstat>,
    ) -> Schedstat {
        self.round += 1;
        let round = self.round;
        let mut sum = Schedstat::default();
        for &pid in pids {
            let now = figures(pid);
            let seen = match (self.live.get_mut(&pid), now) {
                (Some(seen), Some(now)) => {
                    // Less than before: the number was given to a new process between two rounds.
                    if now.run_ns < seen.last.run_ns {
                        self.ended.add(seen.last);
                    }
                    seen.last = now;
                    seen
                }
                (Some(seen), None) => seen,
                (None, Some(now)) => self.live.entry(pid).or_insert(Seen {
                    last: now,
                    round: 0,
                }),
                (None, None) => continue,
            };
            // A process that moves while `cgroup.procs` is read can be listed twice.
            if seen.round != round {
                seen.round = round;
                sum.add(seen.last);
            }
        }
        let ended = &mut self.ended;
        self.live.retain(|_, seen| {
            let stays = seen.round == round;
            if !stays {
                ended.add(seen.last);
            }
            stays
        });
        sum.add(self.ended);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(run_ns: u64) -> Schedstat {
        Schedstat {
            run_ns,
            wait_ns: 2 * run_ns,
            slices: 1,
        }
    }

    type Round<'a> = (&'a [(u32, Option<u64>)], u64);

    /// Rounds of `pid=run` pairs (`pid=?` cannot be read) and the sum of run times after each.
    #[track_caller]
    fn check(rounds: &[Round<'_>]) {
        let mut sum = SchedstatSum::default();
        for (at, (processes, expected)) in rounds.iter().enumerate() {
            let pids: Vec<u32> = processes.iter().map(|p| p.0).collect();
            let found = sum.update(&pids, |pid| {
                processes
                    .iter()
                    .find(|p| p.0 == pid)
                    .and_then(|p| p.1)
                    .map(of)
            });
            assert_eq!(found.run_ns, *expected, "round {at}");
            assert_eq!(found.wait_ns, 2 * expected, "round {at}");
        }
    }

    #[test]
    fn one_line() {
        assert_eq!(
            parse_schedstat(b"742769 12 3\n").unwrap(),
            Schedstat {
                run_ns: 742_769,
                wait_ns: 12,
                slices: 3
            }
        );
        assert!(parse_schedstat(b"1 2\n").is_err());
        assert!(parse_schedstat(b"").is_err());
    }

    #[test]
    fn ended_processes_stay_in_the_sum() {
        check(&[
            (&[(1, Some(10)), (2, Some(5))], 15),
            (&[(1, Some(12))], 17),
            (&[], 17),
            (&[(3, Some(1))], 18),
        ]);
    }

    #[test]
    fn an_unreadable_process_keeps_its_last_figures() {
        check(&[
            (&[(1, Some(10)), (2, Some(5))], 15),
            (&[(1, None), (2, Some(6))], 16),
            (&[(1, Some(11)), (2, Some(6))], 17),
            (&[(9, None)], 17),
        ]);
    }

    #[test]
    fn a_reused_number_is_a_new_process() {
        check(&[(&[(1, Some(10))], 10), (&[(1, Some(3))], 13)]);
        check(&[(&[(1, Some(10)), (1, Some(10))], 10)]);
    }

    proptest! {
        #[test]
        fn the_sum_never_falls(
            rounds in prop::collection::vec(
                prop::collection::vec((0_u32..6, prop::option::of(0_u64..1000)), 0..6),
                0..12,
            ),
        ) {
            let mut sum = SchedstatSum::default();
            let mut before = 0;
            for processes in rounds {
                let pids: Vec<u32> = processes.iter().map(|p| p.0).collect();
                let now = sum.update(&pids, |pid| {
                    processes.iter().find(|p| p.0 == pid).and_then(|p| p.1).map(of)
                });
                prop_assert!(now.run_ns >= before);
                before = now.run_ns;
            }
        }

        #[test]
        fn any_line_survives(run: u64, wait: u64, slices: u64) {
            let parsed = parse_schedstat(format!("{run} {wait} {slices}\n").as_bytes()).unwrap();
            prop_assert_eq!(parsed, Schedstat { run_ns: run, wait_ns: wait, slices });
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_schedstat(&text);
        }
    }
}
