//! An election on a server: its candidates, its Lease, and what became of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use plimsoll_test_support::{clock, poll};
use serde_json::{Value, json};

use super::candidate::{Candidate, Term, overlap};
use super::lease::{self, History, Record};
use super::{LEASE, NAME, PATIENCE};
use crate::client::{Request, Server};
use crate::process::Scratch;
use crate::watch::Watch;

const NAMES: [&str; 3] = ["ada", "bela", "cleo"];
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";
/// Who led, by turns: what an outcome calls them, as chance decides who is first.
const TURNS: [&str; 3] = ["first", "second", "third"];

/// Ends the candidates when dropped.
#[derive(Debug)]
pub struct Election<'a> {
    server: &'a Server,
    namespace: String,
    pub candidates: Vec<Candidate>,
    pub history: History,
    /// Candidates that have led, in this order.
    led: Vec<usize>,
    /// How far the wall clock was ahead of the monotonic one when all began.
    clocks_apart: SignedDuration,
    scratch: Scratch,
}

/// What both servers must have in common.
#[derive(Debug)]
pub struct Expected<'a> {
    /// The Lease over time: holder, seconds, transitions.
    pub lease: &'a [&'a str],
    pub events: &'a [&'a str],
    /// Events that may be there or not, because who tells them was cut off.
    pub perhaps: &'a [&'a str],
}

impl<'a> Election<'a> {
    /// Three candidates stand, `program` each of them.
    pub fn begin(server: &'a Server, program: &Path) -> Result<Self> {
        let letters: String = (0..8).map(|_| fastrand::lowercase()).collect();
        let namespace = format!("election-{letters}");
        let body = json!({"metadata": {"name": namespace}});
        let made = ask(server, "POST", "/api/v1/namespaces", Some(&body))?;
        ensure!(made["kind"] == "Namespace", "make a namespace: {made}");
        let path =
            format!("{LEASES}/{namespace}/leases?watch=true&fieldSelector=metadata.name={NAME}");
        let watch = server.send(&request(server, "GET", &path, None))?;
        ensure!(watch.status == 200, "watch the lease: {}", watch.status);
        let mut election = Self {
            server,
            namespace,
            candidates: Vec::new(),
            history: History::new(Watch::new(watch)),
            led: Vec::new(),
            clocks_apart: clocks_apart()?,
            scratch: Scratch::make()?,
        };
        for name in NAMES {
            let (namespace, scratch) = (&election.namespace, &mut election.scratch);
            let candidate = Candidate::start(name, program, server, namespace, scratch)?;
            election.candidates.push(candidate);
        }
        Ok(election)
    }

    /// Waits for a leader who has not led before, until the Lease and an event say so, too: whatever befalls it then
    /// befalls one that is well established.
    pub fn next_leader(&mut self) -> Result<usize> {
        let next = poll::until("a candidate becomes leader", PATIENCE, || {
            for (index, candidate) in self.candidates.iter().enumerate() {
                if !self.led.contains(&index) && candidate.term()?.is_some() {
                    return Ok(Some(index));
                }
            }
            Ok(None)
        })?;
        self.led.push(next);
        let name = self.candidates[next].name;
        let what = format!("{name} holds the lease and renews it");
        self.history.until(&what, PATIENCE, |records| {
            let held = records.iter().filter(|record| record.holder == name);
            held.count() > 2
        })?;
        let told = format!("{} became leader", self.turn_of(name));
        poll::until(&told, PATIENCE, || {
            Ok(self.events()?.contains(&told).then_some(()))
        })?;
        Ok(next)
    }

    pub fn term(&self, index: usize) -> Result<Term> {
        let candidate = &self.candidates[index];
        let term = candidate.term()?;
        term.with_context(|| format!("{} has not led", candidate.name))
    }

    /// Waits until a leader has noticed that it is none any more.
    pub fn notices_loss(&self, index: usize) -> Result<Duration> {
        let what = format!("{} stops leading", self.candidates[index].name);
        poll::until(&what, PATIENCE, || Ok(self.term(index)?.lost))
    }

    /// How long before its lease expired, counted from its last renewal that the server has seen, a leader acted last.
    /// That it notices as early, too, is for tests whose clock nobody else can hold up.
    pub fn margin(&self, index: usize) -> Result<Duration> {
        let name = self.candidates[index].name;
        let records = self.history.records.iter().rev();
        let last = records
            .filter(|record| record.holder == name)
            .map(|record| record.renewed)
            .next()
            .with_context(|| format!("{name} never held the lease"))?;
        let acted = SignedDuration::try_from(self.term(index)?.active)? + self.clocks_apart;
        let renewed = last.duration_since(Timestamp::UNIX_EPOCH);
        let led_on = Duration::try_from(acted - renewed).unwrap_or_default();
        let margin = (LEASE + self.clock_error()?).checked_sub(led_on);
        margin.with_context(|| format!("{name} led on for {led_on:?} after its last renewal"))
    }

    /// How far the times in the Lease may be wrong: wall clocks are corrected while they run, some by a jump.
    fn clock_error(&self) -> Result<Duration> {
        const ALWAYS: Duration = Duration::from_millis(20);
        let moved = (clocks_apart()? - self.clocks_apart).unsigned_abs();
        Ok(ALWAYS + moved)
    }

    /// Asks a candidate to stop, which has to be fine with it.
    pub fn stop(&mut self, index: usize) -> Result<()> {
        let candidate = &mut self.candidates[index];
        candidate.ask_to_stop();
        candidate.ends_with(0)
    }

    /// Stops those who have never led.
    pub fn stop_followers(&mut self) -> Result<()> {
        for index in 0..self.candidates.len() {
            if !self.led.contains(&index) {
                self.stop(index)?;
            }
        }
        Ok(())
    }

    /// Once all candidates have ended: holds what happened against what should have, and says what was measured.
    pub fn conclude(&mut self, expected: &Expected) -> Result<String> {
        let path = format!("{LEASES}/{}/leases/{NAME}", self.namespace);
        let lease = ask(self.server, "GET", &path, None)?;
        let version = lease["metadata"]["resourceVersion"].clone();
        self.history
            .until("the watch tells everything", PATIENCE, |records| {
                records
                    .last()
                    .is_some_and(|last| version == last.version.as_str())
            })?;
        self.one_at_a_time()?;
        let waits = lease::check(&self.history.records, self.clock_error()?)?;
        let records: Vec<Record> = self
            .history
            .records
            .iter()
            .map(|r| self.by_turns(r))
            .collect();
        let changes = lease::changes(&records);
        ensure!(
            changes == expected.lease,
            "the Lease was {changes:?} instead of {:?}",
            expected.lease
        );
        self.told(expected)?;
        let waits: Vec<String> = waits
            .iter()
            .map(|wait| format!("{:.1} s", wait.as_secs_f64()))
            .collect();
        let _ = ask(
            self.server,
            "DELETE",
            &format!("/api/v1/namespaces/{}", self.namespace),
            None,
        );
        Ok(match waits.is_empty() {
            true => String::new(),
            false => format!("taken over after {}", waits.join(", ")),
        })
    }

    /// Never two leaders.
    fn one_at_a_time(&self) -> Result<()> {
        let mut reigns = Vec::new();
        for candidate in &self.candidates {
            reigns.extend(candidate.reign()?);
        }
        ensure!(
            reigns.len() == self.led.len(),
            "{} candidates led instead of {}",
            reigns.len(),
            self.led.len()
        );
        match overlap(&reigns) {
            None => Ok(()),
            Some((one, other)) => bail!("{one} and {other} led at the same time: {reigns:?}"),
        }
    }

    fn by_turns(&self, record: &Record) -> Record {
        Record {
            holder: self.turn_of(&record.holder),
            ..record.clone()
        }
    }

    fn turn_of(&self, name: &str) -> String {
        let mut turns = self.led.iter().zip(TURNS);
        let turn = turns.find(|(index, _)| self.candidates[**index].name == name);
        turn.map_or(name, |(_, turn)| turn).to_owned()
    }

    /// The events have to be exactly the expected ones, once they are all there.
    fn told(&self, expected: &Expected) -> Result<()> {
        let mut wanted = expected.events.to_vec();
        wanted.sort_unstable();
        poll::until("events tell who led", PATIENCE, || {
            let mut told = self.events()?;
            told.retain(|event| !expected.perhaps.contains(&event.as_str()));
            told.sort_unstable();
            ensure!(told == wanted, "{told:?} instead of {wanted:?}");
            Ok(Some(()))
        })
    }

    /// The events so far, each as `TURN MESSAGE`.
    fn events(&self) -> Result<Vec<String>> {
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let list = ask(self.server, "GET", &path, None)?;
        let items = list["items"].as_array().context("no list of events")?;
        items.iter().map(|event| self.told_by(event)).collect()
    }

    /// An event as `TURN MESSAGE`, provided that it is one of an election.
    fn told_by(&self, event: &Value) -> Result<String> {
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": self.namespace,
            "name": NAME,
        });
        ensure!(
            event["type"] == "Normal"
                && event["reason"] == "LeaderElection"
                && event["involvedObject"] == expected,
            "an event of another kind: {event}"
        );
        let message = event["message"].as_str().unwrap_or_default();
        let (name, what) = message.split_once(' ').unwrap_or_default();
        Ok(format!("{} {what}", self.turn_of(name)))
    }

    pub fn last_words(&self) -> String {
        let words: Vec<String> = self.candidates.iter().map(Candidate::last_words).collect();
        words.join("\n")
    }
}

/// How far the wall clock is ahead of the monotonic one. Between the two looks this thread may have to wait; the
/// shortest of some pairs is taken.
fn clocks_apart() -> Result<SignedDuration> {
    let mut best: Option<(Duration, SignedDuration)> = None;
    for _ in 0..10 {
        let before = clock::monotonic();
        let wall = Timestamp::now().duration_since(Timestamp::UNIX_EPOCH);
        let took = clock::monotonic().saturating_sub(before);
        let apart = wall - SignedDuration::try_from(before)?;
        if best.is_none_or(|(shortest, _)| took < shortest) {
            best = Some((took, apart));
        }
    }
    best.map(|(_, apart)| apart)
        .context("no look at the clocks")
}

fn request(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![
            (
                "Authorization".to_owned(),
                format!("Bearer {}", server.admin_token),
            ),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ],
        body: body.map(|body| body.to_string().into_bytes()),
    }
}

fn ask(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let answer = server.send(&request(server, method, path, body))?.body()?;
    serde_json::from_slice(&answer).with_context(|| format!("{method} {path}"))
}
