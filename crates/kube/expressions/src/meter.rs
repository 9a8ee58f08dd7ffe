//! How much it may cost to compute an expression, and how much it has.
//!
//! *Costs* are counted as the original counts them: what exceeds its limits exceeds ours. They say little about some things: a
//! list that is compared costs its length, whatever is in it. So *steps* are counted, too: values that are looked at,
//! pieces of text, bytes that are made. Their limits are far from anything sensible and keep every construct finite.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cel::{ExecutionError, Value};

use crate::{Expression, in_words};

/// What one evaluation may cost, of any expression.
pub const PER_CALL: u64 = 1_000_000;
/// Values that one evaluation may look at, or pieces of texts of this length.
const STEPS: u64 = 30_000_000;
/// The same for all that are done for one object.
const STEPS_TOGETHER: u64 = 200_000_000;
pub const PIECE: usize = 16;
/// Bytes that one evaluation may make.
const MADE: usize = 128 << 20;
/// What it is to read a pattern, beside its letters.
const PATTERN: u64 = 20_000;

thread_local! {
    static CANCELLED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Does it; whatever it computes ends soon after the flag is set.
pub fn until<R>(cancelled: Arc<AtomicBool>, work: impl FnOnce() -> R) -> R {
    /// A panic must not leave the flag to whoever has the thread next.
    struct Restore(Option<Arc<AtomicBool>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CANCELLED.set(self.0.take());
        }
    }
    let _restore = Restore(CANCELLED.replace(Some(cancelled)));
    work()
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// It would cost too much.
    Spent,
    /// Nobody wants the result any more.
    Cancelled,
    Error(Box<ExecutionError>),
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        Self::Error(Box::new(error))
    }
}

impl Failure {
    /// In the words of the original's interpreter.
    pub fn in_words(&self) -> String {
        match self {
            Self::Spent => "operation cancelled: actual cost limit exceeded".to_owned(),
            Self::Cancelled => "operation interrupted".to_owned(),
            Self::Error(error) => in_words(error),
        }
    }
}

/// What may be done for one object, by however many expressions.
#[derive(Debug)]
pub struct Budget {
    cost: u64,
    steps: u64,
}

/// The budget does not suffice; nothing more is to be done.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Budget {
    pub fn new(cost: u64) -> Self {
        Self {
            cost,
            steps: STEPS_TOGETHER,
        }
    }

    /// Computes an expression, which may cost what any may, and pays for it.
    pub fn evaluate(
        &mut self,
        expression: &Expression,
        variables: &[(&str, Value)],
    ) -> Result<Result<Value, Failure>, Exhausted> {
        let mut meter = Meter::new(PER_CALL);
        meter.steps_limit = self.steps.min(STEPS);
        let found = expression.evaluate(variables, &mut meter);
        self.steps = self.steps.saturating_sub(meter.steps);
        match self.cost.checked_sub(meter.cost) {
            Some(left) if self.steps > 0 => {
                self.cost = left;
                Ok(found)
            }
            _ => {
                self.cost = 0;
                Err(Exhausted)
            }
        }
    }
}

/// Counts for one evaluation.
#[derive(Debug)]
pub struct Meter {
    limit: u64,
    cost: u64,
    steps_limit: u64,
    steps: u64,
    made: usize,
    cancelled: Option<Arc<AtomicBool>>,
}

impl Meter {
    /// Heeds the flag that [`until`] was given, if any.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            cost: 0,
            steps_limit: STEPS,
            steps: 0,
            made: 0,
            cancelled: CANCELLED.with_borrow(Clone::clone),
        }
    }

    /// It looks at no more than so many values.
    #[must_use]
    pub fn at_most(mut self, steps: u64) -> Self {
        self.steps_limit = self.steps_limit.min(steps);
        self
    }

    /// As the original counts it.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Values looked at so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            return Err(Failure::Spent);
        }
        Ok(())
    }

    pub(crate) fn step(&mut self, steps: u64) -> Result<(), Failure> {
        // Looked at now and then: often enough, and seldom enough to cost nothing.
        const EVERY: u64 = 1_024;
        let before = self.steps / EVERY;
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.steps_limit {
            return Err(Failure::Spent);
        }
        if self.steps / EVERY != before
            && let Some(flag) = &self.cancelled
            && flag.load(Ordering::Relaxed)
        {
            return Err(Failure::Cancelled);
        }
        Ok(())
    }

    /// Before so many bytes are made.
    pub(crate) fn make(&mut self, bytes: usize) -> Result<(), Failure> {
        self.made = self.made.saturating_add(bytes);
        if self.made > MADE {
            return Err(Failure::Spent);
        }
        self.step((bytes / PIECE) as u64)
    }

    /// Before a pattern is read.
    pub(crate) fn read_pattern(&mut self, pattern: &str) -> Result<(), Failure> {
        self.step(PATTERN.saturating_add(100 * pattern.len() as u64))
    }

    /// How many values and pieces of text this is; counted.
    pub(crate) fn weigh(&mut self, value: &Value) -> Result<u64, Failure> {
        let before = self.steps;
        self.walk(value)?;
        Ok(self.steps - before)
    }

    fn walk(&mut self, value: &Value) -> Result<(), Failure> {
        self.step(1)?;
        match value {
            Value::String(text) => self.step((text.len() / PIECE) as u64),
            Value::Bytes(bytes) => self.step((bytes.len() / PIECE) as u64),
            Value::List(items) => items.iter().try_for_each(|item| self.walk(item)),
            Value::Map(map) => map.map.values().try_for_each(|item| self.walk(item)),
            Value::Opaque(_) => match crate::library::inner(value) {
                Some(inner) => self.walk(inner),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
