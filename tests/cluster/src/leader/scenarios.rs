//! The ways to lose.

use anyhow::{Result, ensure};
use plimsoll_test_support::{clock, poll};

use super::election::{Election, Expected};
use super::proxy::Cut;
use super::{LEASE, PATIENCE, RETRY, Scenario};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "leader/stopped",
        play: stopped,
    },
    Scenario {
        name: "leader/killed",
        play: killed,
    },
    Scenario {
        name: "leader/paused",
        play: paused,
    },
    Scenario {
        name: "leader/partitioned",
        play: partitioned,
    },
    Scenario {
        name: "leader/unanswered",
        play: unanswered,
    },
];

/// A leader leads for as long as it is there; asked to stop, it hands over at once.
fn stopped(election: &mut Election) -> Result<String> {
    let first = election.next_leader()?;
    // Longer than a lease lasts.
    let renewals = usize::try_from(LEASE.as_millis() / RETRY.as_millis())? + 2;
    election.history.until_renewed(renewals, PATIENCE)?;
    election.stop(first)?;
    let second = election.next_leader()?;
    let lost = election.notices_loss(first)?;
    let took = election.term(second)?.acquired.checked_sub(lost);
    // Who never led has nothing to give back, and says nothing.
    election.stop_followers()?;
    election.stop(second)?;
    election.conclude(&Expected {
        lease: &[
            "first 6 s 0",
            "nobody 1 s 0",
            "second 6 s 1",
            "nobody 1 s 1",
        ],
        events: &[
            "first became leader",
            "first stopped leading",
            "second became leader",
            "second stopped leading",
        ],
        perhaps: &[],
    })?;
    let took = took.unwrap_or_default().as_secs_f64();
    Ok(format!("handed over after {took:.1} s"))
}

/// Whoever is killed is replaced once its lease has expired, until nobody is left to.
fn killed(election: &mut Election) -> Result<String> {
    for _ in 0..2 {
        let leader = election.next_leader()?;
        election.candidates[leader].kill()?;
    }
    let third = election.next_leader()?;
    election.stop(third)?;
    election.conclude(&Expected {
        lease: &["first 6 s 0", "second 6 s 1", "third 6 s 2", "nobody 1 s 2"],
        events: &[
            "first became leader",
            "second became leader",
            "third became leader",
            "third stopped leading",
        ],
        perhaps: &[],
    })
}

/// A leader that was paused for longer than its lease lasted never acts again, notices, and leaves its successor alone.
fn paused(election: &mut Election) -> Result<String> {
    let first = election.next_leader()?;
    election.candidates[first].pause();
    let second = election.next_leader()?;
    let resumed = clock::monotonic();
    election.candidates[first].resume();
    let lost = election.notices_loss(first)?;
    election.candidates[first].ends_with(1)?;
    let last_act = election.term(first)?.active;
    ensure!(
        last_act < election.term(second)?.acquired,
        "it acted after its successor began"
    );
    carries_on(election, second)?;
    let measured = conclude_second(election, false)?;
    let noticed = lost.saturating_sub(resumed).as_millis();
    Ok(format!("{measured}, noticed after {noticed} ms"))
}

/// A leader that nothing gets through to stops by itself before its lease has expired. What it had sent arrives late,
/// and changes nothing.
fn partitioned(election: &mut Election) -> Result<String> {
    cut_off(election, Cut::Everything)
}

/// The same if only the answers are lost: the server may have renewed the lease, but the leader cannot know.
fn unanswered(election: &mut Election) -> Result<String> {
    cut_off(election, Cut::Answers)
}

fn cut_off(election: &mut Election, cut: Cut) -> Result<String> {
    let first = election.next_leader()?;
    election.candidates[first].cut_off(cut);
    election.notices_loss(first)?;
    let second = election.next_leader()?;
    let margin = election.margin(first)?;
    election.candidates[first].ends_with(1)?;
    election.candidates[first].reconnect();
    poll::until("late requests have arrived", PATIENCE, || {
        Ok(election.candidates[first].is_idle().then_some(()))
    })?;
    carries_on(election, second)?;
    let measured = conclude_second(election, true)?;
    let margin = margin.as_secs_f64();
    Ok(format!("{measured}, acted last {margin:.1} s before"))
}

/// The second leader goes on as if nothing were; then all who are left stop, the leader last.
fn carries_on(election: &mut Election, second: usize) -> Result<()> {
    election.history.until_renewed(4, PATIENCE)?;
    election.stop_followers()?;
    election.stop(second)
}

/// The lease went from one to the next without being released. What the first had to tell while it was cut off may have
/// arrived late, or not at all.
fn conclude_second(election: &mut Election, was_cut_off: bool) -> Result<String> {
    let farewell = "first stopped leading";
    let mut events = vec![
        "first became leader",
        "second became leader",
        "second stopped leading",
    ];
    let mut perhaps = vec![];
    match was_cut_off {
        true => perhaps.push(farewell),
        false => events.push(farewell),
    }
    election.conclude(&Expected {
        lease: &["first 6 s 0", "second 6 s 1", "nobody 1 s 1"],
        events: &events,
        perhaps: &perhaps,
    })
}
