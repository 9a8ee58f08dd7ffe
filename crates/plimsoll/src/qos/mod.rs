//! `plimsoll qos`: what protection sees, plans, writes and gives back, and how a person steps in.

mod client;
mod demo;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use plimsoll_actuate::{Filter, Mode, Now};
use plimsoll_agent::protect::control::{Answer, Request};
use plimsoll_agent::protect::finish_writes;
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::{Clock, HostRoot, ReadBuf};
use serde_json::Value;

use crate::go;
use crate::protect_args::{SOCKET, default_journal};

/// Show what the agent of this machine does to protect services, and step in
///
/// It talks to the agent over a Unix socket, so it needs root. `journal` and `restore` also work while no agent runs.
#[derive(Debug, Args)]
pub struct QosArgs {
    /// The agent's socket (its --protect-socket)
    #[arg(long, value_name = "FILE", default_value = SOCKET, global = true)]
    socket: PathBuf,
    /// The agent's journal (its --protect-journal), for when no agent runs
    #[arg(long, value_name = "DIR", default_value_os_t = default_journal(), global = true)]
    journal_dir: PathBuf,
    /// How to print it
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        default_value = "table",
        global = true
    )]
    output: Format,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The mode, what is waited for, and every value that is changed
    Status,
    /// What the strategies want now
    Plan,
    /// Where the kernel has something else than what is wanted
    Diff,
    /// What was changed, when, by whom and why
    Journal {
        /// Only lines after this number
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
        /// At most so many of the newest lines
        #[arg(long, value_name = "N", default_value_t = 100)]
        most: usize,
    },
    /// Leave a cgroup (with all below it) or a file alone, whatever is planned
    Hold {
        /// A cgroup such as /kubepods/besteffort, or the path of a file
        #[arg(value_name = "CGROUP|FILE")]
        what: String,
        /// For how long [default: until it is released]
        #[arg(long = "for", value_name = "DURATION", value_parser = go::duration)]
        duration: Option<Duration>,
    },
    /// End a hold
    Release {
        #[arg(value_name = "CGROUP|FILE")]
        what: String,
    },
    /// Give a part back and hold it: all values of one strategy, a cgroup, or a file
    Undo {
        #[arg(value_name = "STRATEGY|CGROUP|FILE")]
        what: String,
        /// For how long
        #[arg(long = "for", value_name = "DURATION", value_parser = go::duration, default_value = "1h")]
        duration: Duration,
    },
    /// Give everything back; a running agent only observes from then on
    Restore,
    /// Show protection at work for 15 seconds, on two pod-shaped cgroups of its own; needs root, and no agent
    Demo,
    /// Say what the running agent may do: off, observe or enforce
    Mode {
        #[arg(value_name = "MODE", value_parser = ["off", "observe", "enforce"])]
        mode: String,
    },
}

pub fn run(args: &QosArgs) -> Result<()> {
    let Some(request) = request(&args.what) else {
        return demo::run();
    };
    let answer = match client::ask(&args.socket, &request)? {
        Some(answer) => answer,
        None => return without_agent(args),
    };
    match answer {
        Answer::Ok(value) => {
            print(args, &value);
            Ok(())
        }
        Answer::Error(text) => bail!(text),
    }
}

/// `None`: the demonstration asks no agent.
fn request(what: &What) -> Option<Request> {
    Some(match what {
        What::Demo => return None,
        What::Status => Request::Status,
        What::Plan => Request::Plan,
        What::Diff => Request::Diff,
        What::Journal { after, most } => Request::Journal {
            after: *after,
            most: *most,
        },
        What::Hold { what, duration } => Request::Hold {
            what: what.clone(),
            seconds: duration.map(|duration| duration.as_secs()),
        },
        What::Release { what } => Request::Release { what: what.clone() },
        What::Undo { what, duration } => Request::Undo {
            what: what.clone(),
            seconds: Some(duration.as_secs()),
        },
        What::Restore => Request::Restore,
        What::Mode { mode } => Request::Mode { mode: mode.clone() },
    })
}

fn print(args: &QosArgs, value: &Value) {
    let text = match (args.output, &args.what) {
        (Format::Json, _) => format!("{value:#}\n"),
        (_, What::Status) => show::status(value),
        (_, What::Plan) => show::plan(value),
        (_, What::Diff) => show::targets(value),
        (_, What::Journal { .. }) => show::journal(value),
        _ => show::done(value),
    };
    print!("{text}");
}

/// What the journal alone can tell and do.
fn without_agent(args: &QosArgs) -> Result<()> {
    let (dir, socket) = (args.journal_dir.display(), args.socket.display());
    match &args.what {
        What::Journal { after, most } => {
            let lines = plimsoll_actuate::read_journal(&args.journal_dir, *after, *most)
                .with_context(|| format!("read the journal in {dir}; see --journal-dir"))?;
            print(args, &serde_json::to_value(lines)?);
            Ok(())
        }
        What::Restore => {
            if !args.journal_dir.exists() {
                bail!(
                    "there is no journal in {dir}, so nothing can be given back; see --journal-dir"
                );
            }
            let root = HostRoot::detect();
            let hierarchies = Hierarchies::detect(&root, &mut ReadBuf::default())?;
            let config = plimsoll_actuate::Config {
                journal: Some(args.journal_dir.clone()),
                mode: Mode::Observe,
                ..plimsoll_actuate::Config::new(plimsoll_actuate::Machine::new(root, hierarchies))
            };
            let (mut actuator, recovered) = plimsoll_actuate::Actuator::open(config)
                .with_context(|| format!("use the journal in {dir}"))?;
            let mut applied = actuator.restore(&Filter::All, Now::of(&Clock::Real), &());
            finish_writes(&mut actuator, &Clock::Real, &(), &mut applied);
            println!(
                "no agent runs; of {} changed values {} were given back, {} were refused and {} belong to cgroups that are gone",
                recovered.targets.len(),
                applied.restored,
                applied.refused,
                applied.forgotten
            );
            match applied.refused {
                0 => Ok(()),
                _ => bail!("some values could not be given back; see: plimsoll qos journal"),
            }
        }
        _ => bail!(
            "no agent listens on {socket}; start one (plimsoll agent --protect=observe …), or see --socket. \
             `journal` and `restore` work without an agent"
        ),
    }
}
