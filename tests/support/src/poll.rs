//! Waiting for something to become true, with a deadline instead of a guessed sleep.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The probe must not take the CPU from what it waits for.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// An error that no further waiting can mend, such as a broken invariant. Made by [`fatal`].
#[derive(Debug)]
struct Fatal(String);

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fatal {}

/// Makes an error final: [`until`] gives up when its probe returns it.
pub fn fatal(error: Error) -> Error {
    Fatal(format!("{error:#}")).into()
}

/// Calls `probe` until it gives a value, at growing intervals up to a quarter of a second.
///
/// An error of the probe is not final (a server that does not listen yet is an error, too) unless it comes from
/// [`fatal`]. A timeout names the last error as its cause.
pub fn until<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let last = match probe() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) if error.is::<Fatal>() => return Err(error).context(what.to_owned()),
            Err(error) => Some(error),
        };
        if started.elapsed() >= timeout {
            let waited = format!("{what}: not within {:.1} s", timeout.as_secs_f64());
            match last {
                Some(error) => return Err(error).context(waited),
                None => bail!(waited),
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 5 / 4).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_first_value() {
        let mut calls = 0;
        let value = until("counting", Duration::from_secs(60), || {
            calls += 1;
            Ok((calls == 3).then_some(calls))
        });
        assert_eq!(value.unwrap(), 3);
    }

    #[test]
    fn timeout_names_the_wish_and_the_last_error() {
        let failed: Result<()> = until("the moon", Duration::ZERO, || bail!("not up"));
        assert_eq!(
            format!("{:#}", failed.unwrap_err()),
            "the moon: not within 0.0 s: not up"
        );
    }

    #[test]
    fn a_fatal_error_ends_the_wait() {
        let mut calls = 0;
        let failed: Result<()> = until("order", Duration::from_secs(60), || {
            calls += 1;
            Err(fatal(anyhow::anyhow!("two pods on one port")))
        });
        assert_eq!(
            format!("{:#}", failed.unwrap_err()),
            "order: two pods on one port"
        );
        assert_eq!(calls, 1);
    }
}
