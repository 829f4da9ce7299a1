//! `nvidia-runtime`: GPUs inside a container of the very image.

use super::probe::Probe;
use super::scene::Scene;
use super::{Area, Cell, Check};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "nvidia-runtime",
    area: Area::Image,
    looks: "a container of the image cannot be started, or sees fewer GPUs than the ranks need",
    needs: &[Probe::Inside],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| {
        if host.container().is_none() {
            return Cell::skipped("bare host");
        }
        if host.told.one("inside_failed").is_some() {
            let says = host.told.one("inside_error").unwrap_or("docker run failed").to_owned();
            let hint = if says.contains("could not select device driver") || says.contains("nvidia-container") {
                "install nvidia-container-toolkit there and restart docker, or set container.gpus: none"
            } else {
                "try the image by hand: `docker run --rm --gpus all IMAGE nvidia-smi -L`"
            };
            return Cell::fail(format!("no container of the image starts: {says}"), hint);
        }
        if !host.wants_gpus() {
            return Cell::skipped("no GPUs are used");
        }
        let needed = u64::from(scene.job.nproc_per_node.unwrap_or(1));
        if let Some(devices) = host.told.number("inside_devices") {
            return match devices >= needed {
                true => Cell::pass(format!("{devices} GPU devices inside (no nvidia-smi there)")),
                false => Cell::skipped("there is no nvidia-smi in the image to count them with"),
            };
        }
        let (count, says) = host.told.one("inside_gpus").map_or((0, ""), |v| {
            let (count, says) = v.split_once(' ').unwrap_or((v, ""));
            (count.parse().unwrap_or(0), says)
        });
        match count >= needed {
            true => Cell::pass(format!("{count} GPUs inside")),
            false => {
                let says = if says.is_empty() { String::new() } else { format!(": {says}") };
                Cell::fail(
                    format!("{count} of {needed} GPUs are seen inside{says}"),
                    "check nvidia-container-toolkit there: `nvidia-container-cli info`",
                )
            }
        }
    })
}
