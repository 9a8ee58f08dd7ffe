//! Waiting for something to become true, with a deadline instead of a guessed sleep.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Asks `probe` every few milliseconds until it gives a value.
///
/// An error of the probe is not final (a server that is not listening yet is an error, too): the last one is the cause
/// that a timeout names.
pub fn until<T>(
    what: &str,
    timeout: Duration,
    mut probe: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        let last = match probe() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if started.elapsed() >= timeout {
            let waited = format!("{what}: not within {:.1} s", timeout.as_secs_f64());
            match last {
                Some(error) => return Err(error).context(waited),
                None => bail!(waited),
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_first_value() {
        let mut calls = 0;
        let value = until("counting", Duration::from_secs(5), || {
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
}
