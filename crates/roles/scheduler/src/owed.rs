//! An end that is told whatever becomes of the task that owes it.

use tokio::sync::mpsc::UnboundedSender;

/// Who waits for an end has kept a place for it: a task that panics, or is cut off, must give that place back.
#[derive(Debug)]
pub struct Owed<T> {
    to: UnboundedSender<T>,
    /// What is told if nothing else is.
    otherwise: Option<T>,
}

impl<T> Owed<T> {
    pub fn new(to: UnboundedSender<T>, otherwise: T) -> Self {
        Self {
            to,
            otherwise: Some(otherwise),
        }
    }

    pub fn settle(mut self, end: T) {
        self.otherwise = None;
        // Nobody listens any more at the very end only.
        let _ = self.to.send(end);
    }
}

impl<T> Drop for Owed<T> {
    fn drop(&mut self) {
        let Some(end) = self.otherwise.take() else {
            return;
        };
        if std::thread::panicking() {
            tracing::error!("a task panicked; this is a bug, please report it");
        }
        let _ = self.to.send(end);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn exactly_one_end_is_told() {
        let (to, mut told) = mpsc::unbounded_channel();
        Owed::new(to.clone(), "lost").settle("done");
        assert_eq!(told.recv().await, Some("done"));
        let owed = Owed::new(to.clone(), "lost");
        let task = tokio::spawn(async move {
            let _owed = owed;
            panic!("no way");
        });
        assert!(task.await.is_err());
        assert_eq!(told.recv().await, Some("lost"));
        let owed = Owed::new(to, "lost");
        let task = tokio::spawn(async move {
            let _owed = owed;
            std::future::pending::<()>().await;
        });
        task.abort();
        assert!(task.await.is_err());
        assert_eq!(told.recv().await, Some("lost"));
        assert_eq!(told.recv().await, None);
    }
}
