//! A watch that stays open between steps.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::answer::is_telling;
use crate::client::{Exchange, Piece};

/// How long an event or the end may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a watch is listened to for an event too many.
const QUIET: Duration = Duration::from_millis(120);

/// An open watch.
#[derive(Debug)]
pub struct Watch {
    exchange: Exchange,
    pending: Vec<u8>,
}

impl Watch {
    pub fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            pending: Vec::new(),
        }
    }

    /// Waits for so many events, or for the end; an event too many is found out.
    pub fn collect(&mut self, count: usize, to_the_end: bool) -> Result<Value> {
        let mut events = Vec::new();
        let mut ended = false;
        let mut deadline = Instant::now()
            + if count == 0 && !to_the_end {
                QUIET * 4
            } else {
                PATIENCE
            };
        let mut listening_on = false;
        loop {
            events.extend(self.whole_lines()?.into_iter().filter(is_telling));
            if events.len() >= count && !to_the_end && !listening_on && count > 0 {
                listening_on = true;
                deadline = Instant::now() + QUIET;
            }
            match self.exchange.piece(deadline)? {
                Piece::Bytes(bytes) => self.pending.extend_from_slice(&bytes),
                Piece::NothingYet => break,
                Piece::End => {
                    ended = true;
                    break;
                }
            }
        }
        Ok(json!({"events": events, "ended": ended}))
    }

    /// Events as soon as there are some; none when the deadline comes first.
    pub fn events(&mut self, deadline: Instant) -> Result<Vec<Value>> {
        loop {
            let events = self.whole_lines()?;
            let events: Vec<Value> = events.into_iter().filter(is_telling).collect();
            if !events.is_empty() {
                return Ok(events);
            }
            match self.exchange.piece(deadline)? {
                Piece::Bytes(bytes) => self.pending.extend_from_slice(&bytes),
                Piece::NothingYet => return Ok(Vec::new()),
                Piece::End => bail!("the watch has ended"),
            }
        }
    }

    fn whole_lines(&mut self) -> Result<Vec<Value>> {
        let Some(end) = self.pending.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Vec::new());
        };
        let lines: Vec<u8> = self.pending.drain(..=end).collect();
        let lines = String::from_utf8(lines).context("events are not UTF-8")?;
        lines
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("event {line:?}")))
            .collect()
    }
}
