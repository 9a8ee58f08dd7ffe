//! A candidate in an election, as a process that tests can kill, pause and cut off.
//!
//! It leads at most once, as a role does, and writes down when, by the clock that all processes share: `acquired NS`
//! once, `active NS` every few milliseconds for as long as it may act as the leader, `lost NS` once it has noticed that
//! it no longer may. It ends with 0 when it was asked to, with 1 when it lost.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use plimsoll_client::events;
use plimsoll_client::leader_election;
use plimsoll_client::leader_election::{ElectionResult, Leadership};
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_test_support::clock;
use tokio::signal::unix::{SignalKind, signal};

const BEAT: Duration = Duration::from_millis(5);
/// For the last events to be sent.
const LAST_WORDS: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    namespace: String,
    #[arg(long)]
    lease: String,
    #[arg(long)]
    identity: String,
    #[arg(long)]
    lease_milliseconds: u64,
    #[arg(long)]
    renew_milliseconds: u64,
    #[arg(long)]
    retry_milliseconds: u64,
    /// Where to write down when it leads.
    #[arg(long)]
    diary: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    match stand(Arguments::parse()).await {
        Ok(ElectionResult::NeverLed | ElectionResult::Stopped) => ExitCode::SUCCESS,
        Ok(ElectionResult::Lost | ElectionResult::Crashed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn stand(arguments: Arguments) -> Result<ElectionResult> {
    let mut config = leader_election::Config::new(
        arguments.namespace,
        arguments.lease,
        arguments.identity.clone(),
    );
    config.lease_duration = Duration::from_millis(arguments.lease_milliseconds);
    config.renew_deadline = Duration::from_millis(arguments.renew_milliseconds);
    config.retry_period = Duration::from_millis(arguments.retry_milliseconds);

    let clients = plimsoll_client::Config::from_flag(Some(arguments.kubeconfig))
        .build()
        .await?;
    let events = events::Config::new(events::EventApi::Core, "candidate");
    let (recorder, recording) = events.spawn(clients.client());
    let timeout = config.request_timeout();
    let candidate = config.build(
        clients.client_for("leader-election", None, timeout),
        Some(recorder),
    )?;

    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let (stopper, stops) = shutdown::channel();
    tokio::spawn(async move {
        terminate.recv().await;
        stopper.stop();
    });
    let diary = Diary::open(arguments.diary)?;
    let leadership = candidate.leadership();
    let ended = candidate
        .run(stops, |work_stops| lead(diary, leadership, work_stops))
        .await;
    recording.drain(LAST_WORDS).await;
    Ok(ended)
}

/// Acts from a thread of its own: one that is not in step with the election, and after a pause may well be the first to
/// go on.
async fn lead(mut diary: Diary, leadership: Leadership, stops: Shutdown) {
    diary.write("acquired", clock::monotonic());
    let acting = stops.clone();
    let acted = tokio::task::spawn_blocking(move || {
        while !acting.has_begun() {
            // The time first: who is paused between the two has not acted at a time it could not vouch for.
            let at = clock::monotonic();
            if leadership.is_leader() {
                diary.write("active", at);
            }
            std::thread::sleep(BEAT);
        }
        diary
    });
    stops.begins().await;
    if let Ok(mut diary) = acted.await {
        diary.write("lost", clock::monotonic());
    }
}

struct Diary(File);

impl Diary {
    fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(&path);
        Ok(Self(
            file.with_context(|| format!("open {}", path.display()))?,
        ))
    }

    /// One write a line, so that no reader sees half of one.
    fn write(&mut self, what: &str, at: Duration) {
        let line = format!("{what} {}\n", at.as_nanos());
        if let Err(error) = self.0.write_all(line.as_bytes()) {
            eprintln!("diary: {error}");
        }
    }
}
