//! Arguments and variables of the inventory arrive byte for byte, through ssh, sh, docker and the launcher.

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec, yaml_quote};

/// The prompt of the first guide, with the quotes that a shell's double quotes would eat.
const PROMPT: &str = "A cinematic video. An astronaut in a white spacesuit walks cautiously on the red, dusty surface of Moon. The camera tilts up to reveal the word \"tenxcloud\" clearly engraved on the rock's surface.";

/// Words that some layer on the path could interpret.
const TRICKY_STRINGS: [&str; 22] = [
    PROMPT,
    "",
    " ",
    "-n",
    "--",
    "832*480",
    "it's",
    "$HOME ${PATH} $(id) `id`",
    "a\\b\\\\c\\n\\",
    "line one\nline two\n",
    "\n",
    "tab\tcr\rend",
    "宇航员在红色的月球表面行走：“tenxcloud”",
    "emoji 🚀 e\u{301} \u{202e}rtl \u{2028} \u{85} \u{feff}",
    "{% raw %} {# note #} ${VAR} }}",
    "~ ~root !! !$ #hash",
    "a=b c=d;e&f|g>h<i",
    "\"'\"'\"",
    "%s %d %n%%",
    "\u{1}\u{1b}[31mred\u{1b}[0m\u{7f}",
    "yes",
    "1e3",
];

/// Pseudo-random text, the same in every run.
fn generate_tricky_strings(count: usize) -> Vec<String> {
    const FRAGMENTS: [&str; 24] = [
        "'", "\"", "$", "\\", "\n", "`", " ", "  ", "$(", ")", "${", "}", "中", "文字", "é", "🚀", "a", "Z", "0", "*", "!", "\\n", "\t",
        "EOF",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).expect("small") % below
    };
    (0..count).map(|_| (0..next(40)).map(|_| FRAGMENTS[next(FRAGMENTS.len())]).collect::<String>().replace("{{", "{")).collect()
}

fn decode_base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text.trim()).expect("base64")
}

/// Strings that each end with NUL.
fn split_nul_terminated(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8(bytes.to_vec()).expect("the sent bytes are text");
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[track_caller]
fn assert_arrives_unchanged(cluster: &Cluster, mut job: JobSpec) {
    let laptop = Laptop::new();
    let sent: Vec<String> = TRICKY_STRINGS.iter().map(|w| (*w).to_owned()).chain(generate_tricky_strings(30)).collect();
    job.command.extend(sent.iter().cloned());
    let variables: Vec<String> = sent.iter().enumerate().map(|(i, value)| format!("V{i}: {}\n", yaml_quote(value))).collect();
    job.env = variables.concat();
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", path_str(&file)]).assert_exit_code(0);
    for log in laptop.rank_log_names() {
        let text = laptop.read_log_text(&log);
        let part = |name: &str| decode_base64(text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_else(|| panic!("{log}: {text}")));
        assert_eq!(split_nul_terminated(&part("argv ")), sent, "the arguments of {log}");
        let env = split_nul_terminated(&part("env "));
        for (i, value) in sent.iter().enumerate() {
            let name = format!("V{i}=");
            let got: Vec<&str> = env.iter().filter_map(|v| v.strip_prefix(&name)).collect();
            assert_eq!(got, [value], "V{i} of {log}");
        }
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn container_arguments_arrive_byte_for_byte() {
    let cluster = Cluster::acquire();
    assert_arrives_unchanged(&cluster, JobSpec::busybox("bytes-script").with_command(&["/bin/sh", "/mnt/dump.sh"]));
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn bare_host_arguments_arrive_byte_for_byte() {
        let cluster = Cluster::acquire();
        assert_arrives_unchanged(
            &cluster,
            JobSpec::busybox("bytes-bare").with_command(&["/bin/sh", "/mnt/dump.sh"]).without_container().with_hosts(&["gpu01", "gpu03"]),
        );
        cluster.assert_hosts_unchanged();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn torchrun_arguments_arrive_byte_for_byte() {
        let cluster = Cluster::acquire();
        let mut job = JobSpec::torch("bytes-torchrun").with_command(&["--no_python", "/bin/sh", "/mnt/dump.sh"]).with_hosts(&["gpu02"]);
        job.nproc_per_node = 1;
        assert_arrives_unchanged(&cluster, job);
        cluster.assert_hosts_unchanged();
    }
}
