//! Somebody waits, and says so.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::repeated::Repeated;

/// Who has no answer by then says what for. Below the five seconds within which it has to be said.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between looks whether it is time to say it again.
const LOOK: Duration = Duration::from_secs(1);

/// Something that is waited for. Clones are the same.
#[derive(Debug, Clone)]
pub struct Waiting(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    what: Cow<'static, str>,
    /// What to do where nothing has answered at all.
    advice: Cow<'static, str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    repeated: Repeated,
    /// The last answer.
    trouble: Option<String>,
}

impl Waiting {
    /// `what` completes "waiting for"; `advice` is what to do if nobody answers.
    pub fn new(what: impl Into<Cow<'static, str>>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            what: what.into(),
            advice: advice.into(),
            state: Mutex::default(),
        }))
    }

    /// That is no answer to go on with. Says so, unless it has just been said.
    pub fn failed(&self, trouble: impl Into<String>) {
        let mut state = self.0.state.lock();
        let trouble = state.trouble.insert(trouble.into()).clone();
        if let Some(said) = state.repeated.failed() {
            drop(state);
            self.say(&trouble, said.times, said.lasted);
        }
    }

    /// There is nothing to wait for any more. Says so if it was said that there is.
    pub fn over(&self) {
        let mut state = self.0.state.lock();
        state.trouble = None;
        if let Some(over) = state.repeated.well() {
            let (failures, seconds) = (over.failures, over.lasted.as_secs());
            let what = &*self.0.what;
            tracing::info!(what, failures, seconds, "no longer waiting");
        }
    }

    /// Why it is still waited, for health checks; `None`: all is well.
    pub fn trouble(&self) -> Option<String> {
        let state = self.0.state.lock();
        let seconds = state.repeated.failing_for()?.as_secs();
        let trouble = state.trouble.as_deref().unwrap_or(NO_ANSWER);
        Some(format!(
            "waiting for {} for {seconds} s: {trouble}",
            self.0.what
        ))
    }

    /// Waits for an answer, whatever it is. Says so if there is none soon, and again.
    pub async fn during<F: Future>(&self, answer: F) -> F::Output {
        self.during_telling(answer, || None).await
    }

    /// The same for what others know better why it takes so long.
    pub async fn during_telling<F: Future>(
        &self,
        answer: F,
        trouble: impl Fn() -> Option<String>,
    ) -> F::Output {
        let began = Instant::now();
        let mut answer = std::pin::pin!(answer);
        let mut looks = tokio::time::interval_at(began + LOOK, LOOK);
        let mut is_counted = false;
        loop {
            tokio::select! {
                answer = &mut answer => return answer,
                _ = looks.tick() => {}
            }
            if began.elapsed() < PATIENCE {
                continue;
            }
            let mut state = self.0.state.lock();
            let said = match std::mem::replace(&mut is_counted, true) {
                true => state.repeated.look(),
                false => state.repeated.failed(),
            };
            let advice = &self.0.advice;
            let trouble = trouble().or_else(|| state.trouble.clone());
            let trouble = trouble.unwrap_or_else(|| format!("{NO_ANSWER}; {advice}"));
            state.trouble = Some(trouble.clone());
            drop(state);
            if let Some(said) = said {
                self.say(&trouble, said.times, said.lasted);
            }
        }
    }

    fn say(&self, trouble: &str, times: u64, lasted: Duration) {
        let (what, seconds) = (&*self.0.what, lasted.as_secs());
        match times {
            0 | 1 if seconds == 0 => tracing::warn!(what, trouble, "waiting"),
            _ => tracing::warn!(what, trouble, times, seconds, "still waiting"),
        }
    }
}

const NO_ANSWER: &str = "no answer yet";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_answer_has_something_to_say() {
        let waiting = Waiting::new("the moon", "look up");
        let trouble = async |seconds: u64| {
            let pause = tokio::time::sleep(Duration::from_secs(seconds));
            waiting.during(pause).await;
            waiting.trouble()
        };
        assert_eq!(trouble(2).await, None);
        let said = trouble(10).await.unwrap();
        assert_eq!(said, "waiting for the moon for 7 s: no answer yet; look up");
        waiting.failed("it is new");
        let said = waiting.trouble().unwrap();
        assert_eq!(said, "waiting for the moon for 7 s: it is new");
        waiting.clone().over();
        assert_eq!(waiting.trouble(), None);
    }
}
