//! Tests of the agent on a real kernel. This program is the guest's init, its test runner and its workloads.
//!
//! `cargo xtask test --only kernel` boots it; outside of such a guest it does nothing.

mod api_server;
mod cases;
mod init;
mod workload;

use std::process::ExitCode;

use plimsoll_test_support::janitor;

fn main() -> ExitCode {
    if let Some(code) = janitor::helper() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("tests") => cases::run(),
        Some("workload") => workload::run(&arguments[1..]),
        // The kernel gives init the words of its command line that it does not know itself.
        _ if std::process::id() == 1 => init::run(),
        _ => {
            eprintln!("this is the guest program of `cargo xtask test --only kernel`");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
