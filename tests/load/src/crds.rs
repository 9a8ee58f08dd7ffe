//! Definitions of custom resources: what a write of one costs when there are few and when there are many, and how soon
//! a server with all of them is ready again. A real kube-apiserver is asked the same where there is one.

mod generated;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use plimsoll_test_support::proc::{self, CpuTime};
use serde_json::Value;

use crate::create::SERVER_ALONE;
use crate::peer::Peer;
use crate::subject::Subject;
use crate::wire::{Connection, Target};
use crate::{Options, Report, percentile};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const COUNT: usize = 215;
/// Definitions of the same size are written when there are so many.
const POINTS: [usize; 3] = [5, 65, 200];
/// So many each time, of which the middle one counts.
const PROBES: usize = 5;
const PROBE_BYTES: usize = 60_000;
/// As real projects have them.
const SIZES: [usize; 8] = [
    10_000, 16_000, 25_000, 40_000, 60_000, 90_000, 150_000, 300_000,
];
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// What follows from a write is done when the process has used no more than this for as long as that.
const QUIET: (Duration, Duration) = (Duration::from_millis(15), Duration::from_millis(300));
const QUIET_WITHIN: Duration = Duration::from_secs(30);

/// What a server took, in seconds of CPU but for the last.
#[derive(Debug, Default)]
struct Outcome {
    /// By point.
    created: Vec<f64>,
    applied_again: Vec<f64>,
    dry_run: Vec<f64>,
    all: f64,
    rss_mib: f64,
}

pub async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let temp = tempfile::tempdir()?;
    let subject = Subject::start(&options.program, temp.path(), &SERVER_ALONE)?;
    let ours = write_all(&subject.target()?, subject.pid()).await?;
    subject.stop()?;
    let again = Subject::start(&options.program, temp.path(), &SERVER_ALONE)?;
    let (took, cpu) = (again.took.as_secs_f64(), again.cpu()?);
    let cpu = cpu.since(&CpuTime::default()).as_secs_f64();
    wait_quiet(again.pid()).await?;
    let rss_again = again.rss_mib()?;
    let mut connection = again.target()?.connect().await?;
    let use_one = use_one(&mut connection, again.pid()).await?;
    let rss_used = again.rss_mib()?;
    again.stop()?;

    let theirs = match &options.kube_bin {
        None => None,
        Some(programs) => {
            let peer = Peer::start(programs, temp.path()).await?;
            Some(write_all(&peer.target()?, peer.pid()).await?)
        }
    };
    for (place, point) in POINTS.iter().enumerate() {
        for (what, of) in [
            (
                "created",
                (|outcome| &outcome.created) as fn(&Outcome) -> &Vec<f64>,
            ),
            ("applied again, unchanged", |outcome| &outcome.applied_again),
            ("dry run", |outcome| &outcome.dry_run),
        ] {
            let name = format!("definition number {point} {what}: CPU");
            let own = of(&ours)[place] * 1e3;
            match &theirs {
                Some(theirs) => {
                    let bar = (of(theirs)[place] * 1e5).round() / 1e2;
                    report.note(&format!("{name} of kube-apiserver"), bar, "ms");
                    report.at_most(&name, own, "ms", bar);
                }
                None => report.note(&name, own, "ms"),
            }
        }
    }
    let growth = ours.created[POINTS.len() - 1] / ours.created[0];
    report.at_most(
        "definition number 200 relative to number 5",
        growth,
        "×",
        1.5,
    );
    report.note("all 215 definitions written: CPU", ours.all, "s");
    report.note("RSS when they are written", ours.rss_mib, "MiB");
    report.at_most("restart with 215 definitions to ready", took, "s", 1.0);
    report.note("restart with 215 definitions: CPU", cpu, "s");
    report.note(
        "the first object of a large definition: CPU",
        use_one * 1e3,
        "ms",
    );
    report.note("RSS after the restart", rss_again, "MiB");
    match theirs {
        Some(theirs) => {
            report.note("all written: CPU of kube-apiserver", theirs.all, "s");
            report.note("RSS of kube-apiserver", theirs.rss_mib, "MiB");
            let bar = (theirs.rss_mib / 3.0).round();
            report.at_most(
                "RSS with 215 definitions",
                ours.rss_mib.max(rss_used),
                "MiB",
                bar,
            );
        }
        None => {
            println!("no kube-apiserver to compare with: give --kube-bin, or run cargo xtask kube")
        }
    }
    Ok(())
}

async fn write_all(target: &Target, pid: u32) -> Result<Outcome> {
    let mut connection = target.connect().await?;
    let mut outcome = Outcome::default();
    wait_quiet(pid).await?;
    let begun = CpuTime::of(pid)?;
    let mut index = 0;
    while index < COUNT {
        index += 1;
        if POINTS.contains(&index) {
            let mut created = Vec::new();
            let mut applied = Vec::new();
            let mut dry = Vec::new();
            for probe in 0..PROBES {
                let definition = generated::definition(index + probe, PROBE_BYTES);
                let another = generated::definition(COUNT + index + probe, PROBE_BYTES);
                wait_quiet(pid).await?;
                created.push(cost(pid, create(&mut connection, &definition)).await?);
                // The first one makes the fields the applier's.
                apply(&mut connection, &definition).await?;
                wait_quiet(pid).await?;
                applied.push(cost(pid, apply(&mut connection, &definition)).await?);
                let body = another.to_string();
                let path = format!("{DEFINITIONS}?dryRun=All");
                dry.push(cost(pid, connection.create(&path, body)).await?);
            }
            outcome.created.push(percentile(&mut created, 0.5));
            outcome.applied_again.push(percentile(&mut applied, 0.5));
            outcome.dry_run.push(percentile(&mut dry, 0.5));
            index += PROBES - 1;
            continue;
        }
        let definition = generated::definition(index, SIZES[index % SIZES.len()]);
        create(&mut connection, &definition).await?;
    }
    wait_quiet(pid).await?;
    outcome.all = CpuTime::of(pid)?.since(&begun).as_secs_f64();
    outcome.rss_mib = proc::rss_kib(pid)? as f64 / 1024.0;
    Ok(outcome)
}

/// The CPU time that the server takes for something and for all that follows from it.
async fn cost<T>(pid: u32, work: impl Future<Output = Result<T>>) -> Result<f64> {
    let before = CpuTime::of(pid)?;
    work.await?;
    wait_quiet(pid).await?;
    Ok(CpuTime::of(pid)?.since(&before).as_secs_f64())
}

async fn wait_quiet(pid: u32) -> Result<()> {
    let until = Instant::now() + QUIET_WITHIN;
    loop {
        let before = CpuTime::of(pid)?;
        tokio::time::sleep(QUIET.1).await;
        if CpuTime::of(pid)?.since(&before) <= QUIET.0 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "the server never rests");
    }
}

/// Returns when its objects are served.
async fn create(connection: &mut Connection, definition: &Value) -> Result<()> {
    connection
        .create(DEFINITIONS, definition.to_string())
        .await?;
    let until = Instant::now() + SERVED_WITHIN;
    let objects = generated::objects_of(definition);
    loop {
        let answer = connection
            .send(Method::GET, &objects, "application/json", "")
            .await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if status == StatusCode::OK {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{objects}: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn apply(connection: &mut Connection, definition: &Value) -> Result<()> {
    let name = definition["metadata"]["name"].as_str().context("no name")?;
    let path = format!("{DEFINITIONS}/{name}?fieldManager=bench&force=true");
    let media = "application/apply-patch+yaml";
    connection
        .ask(Method::PATCH, &path, media, definition.to_string())
        .await?;
    Ok(())
}

/// An object of one of the largest definitions, which has to be read for it.
async fn use_one(connection: &mut Connection, pid: u32) -> Result<f64> {
    const LARGE: usize = 15;
    let definition = generated::definition(LARGE, SIZES[LARGE % SIZES.len()]);
    let object = generated::object_of(&definition);
    let path = generated::objects_of(&definition);
    cost(pid, connection.create(&path, object.to_string())).await
}
