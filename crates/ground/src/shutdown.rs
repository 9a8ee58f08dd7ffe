//! One signal that tells everything to stop.

use tokio::sync::watch;

/// Makes the two ends of the signal.
pub fn channel() -> (Stopper, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Shutdown(receiver))
}

/// Gives the signal, at the latest when it is dropped: whoever waits for it must not wait for ever.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub fn shutdown(&self) -> Shutdown {
        Shutdown(self.0.subscribe())
    }
}

/// Waits for the signal; clones wait for the same one.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

impl Shutdown {
    /// Returns when stopping begins, at once if it already has.
    pub async fn begins(&self) {
        // A stopper that is gone without a word has stopped too.
        let _ = self.0.clone().wait_for(|stopping| *stopping).await;
    }

    pub fn has_begun(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_hears_it_early_or_late() {
        let (stopper, shutdown) = channel();
        assert!(!shutdown.has_begun());
        let early = shutdown.clone();
        let waiting = tokio::spawn(async move { early.begins().await });
        stopper.stop();
        waiting.await.unwrap();
        stopper.shutdown().begins().await;
        assert!(shutdown.has_begun());
    }

    #[tokio::test]
    async fn a_lost_stopper_counts_as_stopped() {
        let (stopper, shutdown) = channel();
        drop(stopper);
        shutdown.begins().await;
        assert!(shutdown.has_begun());
    }
}
