//! Work that takes its time is done where it holds nobody up, and ends when nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::field::FieldError;
use crate::kinds::Kind;
use crate::served::Served;

/// Sets the flag when the request is given up.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a kind has against an object.
pub async fn objections(
    served: &Arc<Served>,
    find: impl FnOnce(&dyn Kind) -> Vec<FieldError> + Send + 'static,
) -> Vec<FieldError> {
    let served = Arc::clone(served);
    aside(move || find(served.kind())).await
}

async fn aside<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let given_up = GivenUp(Arc::default());
    let flag = Arc::clone(&given_up.0);
    let done = tokio::task::spawn_blocking(move || plimsoll_expressions::until(flag, work)).await;
    match done {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use cel::Value;
    use plimsoll_expressions::{Expression, Failure, Meter, Type};

    use super::*;

    #[tokio::test]
    async fn what_nobody_waits_for_ends() {
        let (ended, mut end) = tokio::sync::mpsc::unbounded_channel();
        let (started, start) = tokio::sync::oneshot::channel();
        let work = aside(move || {
            let source = "l.all(x, l.all(y, l.all(z, x + y + z >= 0)))";
            let variables = BTreeMap::from([("l", Type::list(Type::Int))]);
            let expression = Expression::compile(source, &variables).unwrap();
            let list = Value::List(Arc::new((0..7_000).map(Value::Int).collect()));
            let _ = started.send(());
            // As often as it takes: each of these ends for its costs.
            loop {
                let mut meter = Meter::new(u64::MAX);
                let found = expression.evaluate(&[("l", list.clone())], &mut meter);
                if found == Err(Failure::Cancelled) {
                    let _ = ended.send(());
                    return;
                }
            }
        });
        let work = tokio::spawn(work);
        start.await.unwrap();
        work.abort();
        let end = tokio::time::timeout(Duration::from_secs(60), end.recv()).await;
        assert_eq!(end, Ok(Some(())));
    }
}
