//! `nvidia-runtime`: GPUs inside a container of the very image.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "nvidia-runtime",
    area: CheckArea::Environment,
    description: "a container of the image does not start, or sees fewer GPUs than the ranks need",
    probes: &[Probe::Environment],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if host.container().is_none() {
            return CheckResult::skipped("bare host");
        }
        if host.has_failed_inside() {
            let message = host.probe_output.last_value("inside_error").unwrap_or("docker run failed").to_owned();
            // Docker's words; the check `mounts` names the directory and the remedy.
            if message.contains("bind source path does not exist") {
                return CheckResult::skipped("no container starts here until its mounts exist; `up` makes those with `create: true`");
            }
            let hint = if message.contains("could not select device driver") || message.contains("nvidia-container") {
                "install nvidia-container-toolkit on that host and restart docker, or set container.gpus: none"
            } else {
                "start a container of the image on that host by hand; `orchestrate plan` prints the `docker run` line"
            };
            return CheckResult::fail(format!("a container of the image does not start: {message}"), hint);
        }
        if !host.wants_gpus() {
            return CheckResult::skipped("no GPUs are used");
        }
        let needed = u64::from(host.job_host.nproc.unwrap_or(1));
        if let Some(devices) = host.probe_output.last_number("inside_devices") {
            return match devices >= needed {
                true => CheckResult::pass(format!("{devices} GPU devices inside (no nvidia-smi in the image)")),
                false => CheckResult::skipped("no nvidia-smi in the image: GPUs not counted"),
            };
        }
        let (count, message) = host.probe_output.last_value("inside_gpus").map_or((0, ""), |v| {
            let (count, message) = v.split_once(' ').unwrap_or((v, ""));
            (count.parse().unwrap_or(0), message)
        });
        match count >= needed {
            true => CheckResult::pass(format!("{count} GPUs inside")),
            false => {
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                CheckResult::fail(
                    format!("{count} of {needed} GPUs are visible inside{message}"),
                    "check nvidia-container-toolkit on that host: `nvidia-container-cli info`",
                )
            }
        }
    })
}
