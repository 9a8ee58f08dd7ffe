//! An embedded time-series store for one machine: thousands of series, a sample a second, half a day.
//!
//! The way of a sample: [`Tsdb::append`] puts it into its series' open chunk (`chunk`: timestamps as differences of
//! differences, values XORed with the one before) and notes it in the journal (`journal`). Every ten minutes
//! [`Tsdb::maintain`] seals what is complete into a block (`block`: one file, one compressed column a series), after
//! which the journal of that time is dropped, and removes blocks that are too old or too many. [`Tsdb::read`] joins
//! blocks and chunks.
//!
//! The store has no thread and no clock of its own, and knows no metric names: a series' key is any text.
//!
//! What breaks costs as little as can be: a bad record its series' ten minutes, a bad block itself, a full disk the
//! persistence of what does not fit; never the process.

pub mod aggregate;
mod bits;
mod block;
mod chunk;
mod facts;
mod head;
mod journal;
mod recover;
mod retention;
mod seal;
mod store;
mod trouble;
mod varint;

#[cfg(test)]
mod tests;

pub use facts::Facts;
pub use store::{
    Appended, Config, Error, Maintained, Recovered, Sample, Scratch, SeriesId, Stats, Tsdb,
};
