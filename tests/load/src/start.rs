//! From nothing to Ready, and what that takes.

use std::time::Duration;

use anyhow::Result;

use crate::subject::Subject;
use crate::{Options, Report, percentile};

const STARTS: usize = 5;
/// The agent has taken a few samples by then, and garbage of the start is gone or here to stay.
const SETTLED: Duration = Duration::from_secs(5);

pub async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let mut fresh = Vec::new();
    let mut again = Vec::new();
    let mut rss = 0.0;
    for _ in 0..STARTS {
        let temp = tempfile::tempdir()?;
        let subject = Subject::start(&options.program, temp.path(), &[])?;
        fresh.push(subject.took.as_secs_f64());
        subject.stop()?;
        let subject = Subject::start(&options.program, temp.path(), &[])?;
        again.push(subject.took.as_secs_f64());
        if again.len() == STARTS {
            tokio::time::sleep(SETTLED).await;
            rss = subject.rss_mib()?;
        }
        subject.stop()?;
    }
    report.at_most(
        "up to Ready in a new folder (median of 5)",
        percentile(&mut fresh, 0.5),
        "s",
        1.0,
    );
    report.at_most(
        "up to Ready in a known folder (median of 5)",
        percentile(&mut again, 0.5),
        "s",
        1.0,
    );
    report.at_most("RSS with one node", rss, "MiB", 60.0);
    Ok(())
}
