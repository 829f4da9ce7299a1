//! The cost of the diagnosis: lines per second that the rules scan on one core.
//!
//! `cargo bench --bench diagnose` feeds three corpora as log events of 64 KiB to [`Evidence`]: training lines in ASCII, NCCL's INFO lines,
//! and progress bars in UTF-8 with Chinese text; each with the built-in rules, and again with a user's rules added. The time is the CPU
//! time of this thread; each corpus is fed five times, and the median is printed with the range. Fails if a rule matches: these are lines of
//! healthy programs.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a failed benchmark panics")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orchestrate::diagnose::{Evidence, RuleSet};
use orchestrate::event::{Event, EventKind, LogFile};
use orchestrate::inventory::{InventorySource, diagnosis_rules};

const LINES: u32 = 1_000_000;
const CHUNK: usize = 64 << 10;
const ROUNDS: usize = 5;

/// Rules as a user would write them: word boundaries, classes, alternatives, and Chinese words.
const USER_RULES: &str = r"
- { id: quota, re: '\bquota of (?P<user>\w+) exceeded\b', what: 'no space for {user}' }
- { id: licence, re: '(?i)\blicen[cs]e (server|file)\b.*\b(denied|expired)\b', what: no licence }
- { id: nan, re: '\bloss\b\s*[=:]\s*(nan|inf)\b', what: the loss is no number }
- { id: chinese, re: '磁盘空间不足|(节点|显卡)掉线', what: { en: a host is gone, zh: 节点掉线 } }
";

fn main() {
    let own = RuleSet::built_in().expect("the program's own rules");
    let source = InventorySource { name: "users.yaml".to_owned(), text: USER_RULES.to_owned() };
    let users =
        Arc::new(RuleSet::with_user_rules(diagnosis_rules::read_rules(&source).expect("good rules")).expect("the rules are small enough"));
    let judges = [Evidence::with_built_in_rules(), Evidence::new(users)];
    println!("{LINES} lines each, {} rules of the program's own", own.rules().len());
    println!("{:<28} {:>9} {:>22} {:>22}", "corpus", "bytes", "own rules", "with a user's rules");
    for (name, text) in
        [("training lines, ASCII", training_lines()), ("NCCL INFO", nccl_lines()), ("progress bars, Chinese", progress_bar_lines())]
    {
        let text = Bytes::from(text);
        print!("{name:<28} {:>7}MB", text.len() / 1_000_000);
        for evidence in &judges {
            let mut times: Vec<Duration> = (0..ROUNDS).map(|_| time_corpus(evidence, &text)).collect();
            times.sort_unstable();
            let rate = |time: Duration| f64::from(LINES) / time.as_secs_f64() / 1e6;
            let (slow, fast) = (rate(times[ROUNDS - 1]), rate(times[0]));
            print!("   {:>5.2} ({slow:.2}-{fast:.2}) M/s", rate(times[ROUNDS / 2]));
        }
        println!();
    }
}

/// Measures one corpus.
fn time_corpus(evidence: &Evidence, text: &Bytes) -> Duration {
    let mut evidence = evidence.clone();
    let file = LogFile::Rank { rank: 0, restart: 0 };
    let begun = thread_time();
    let mut offset = 0;
    while offset < text.len() {
        let bytes = text.slice(offset..(offset + CHUNK).min(text.len()));
        let len = bytes.len() as u64;
        let kind = EventKind::Log { host: 0, file, offset: offset as u64, bytes, len };
        evidence.apply(&Event { seq: 1, at: 1_795_262_400_000, kind });
        offset += CHUNK;
    }
    let spent = thread_time() - begun;
    assert_eq!(evidence.matched_rule_ids(), Vec::<String>::new(), "the lines of programs that are well");
    spent
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).expect("positive"), u32::try_from(time.tv_nsec).expect("less than a second"))
}

/// Pseudo-random numbers, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn next_below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn build_corpus(mut line: impl FnMut(&mut String, u32, &mut SeededRandom)) -> String {
    let (mut text, mut numbers) = (String::new(), SeededRandom(7));
    for at in 0..LINES {
        line(&mut text, at, &mut numbers);
    }
    text
}

fn training_lines() -> String {
    build_corpus(|text, step, n| {
        let (loss, norm, rate) = (n.next_below(4000), n.next_below(900), n.next_below(9999));
        match n.next_below(10) {
            0 => writeln!(text, "2026-11-22 01:30:{:02},{:03} - INFO - trainer - saving checkpoint to /data/ckpt/step-{step}", n.next_below(60), n.next_below(1000)),
            1 => writeln!(text, "[rank{}] eval: accuracy 0.{rate:04} perplexity {}.{norm:03} over 2048 samples", n.next_below(8), loss / 100),
            2 => writeln!(text, "{{'loss': 2.{loss:04}, 'grad_norm': 0.{norm:03}, 'learning_rate': 3.0e-04, 'epoch': 0.{rate:04}}}"),
            _ => writeln!(
                text,
                "step {step}/1000000 | loss 2.{loss:04} | grad norm 0.{norm:03} | lr 3.00e-04 | 52{rate:04} tokens/s | mfu 41.{}% | mem 61.2GiB",
                n.next_below(9)
            ),
        }
        .expect("writing to a String");
    })
}

fn nccl_lines() -> String {
    build_corpus(|text, _, n| {
        let (rank, pid, channel, peer) = (n.next_below(64), 10_000 + n.next_below(9000), n.next_below(32), n.next_below(64));
        write!(text, "gpu{:02}:{pid}:{} [{}] NCCL INFO ", rank / 8 + 1, pid + 90, rank % 8).expect("writing to a String");
        match n.next_below(6) {
            0 => writeln!(
                text,
                "Channel {channel:02}/0 : {rank}[{}] -> {peer}[{}] [send] via NET/IB/{}/GDRDMA",
                rank % 8,
                peer % 8,
                n.next_below(8)
            ),
            1 => writeln!(text, "Channel {channel:02}/0 : {rank}[{}] -> {peer}[{}] via P2P/CUMEM", rank % 8, peer % 8),
            2 => writeln!(text, "Ring {channel:02} : {peer} -> {rank} -> {}", (rank + 1) % 64),
            3 => writeln!(text, "Trees [0] {peer}/-1/-1->{rank}->{} [1] {peer}/-1/-1->{rank}->{}", n.next_below(64), n.next_below(64)),
            4 => writeln!(text, "Connected all rings, use ring PXN 0 GDR 1"),
            _ => writeln!(
                text,
                "comm 0x55d{pid:x}0 rank {rank} nranks 64 cudaDev {} nvmlDev {} busId {channel:x}000 commId 0x7a{peer:x} - Init COMPLETE",
                rank % 8,
                rank % 8
            ),
        }
        .expect("writing to a String");
    })
}

fn progress_bar_lines() -> String {
    let blocks = ["▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
    build_corpus(|text, step, n| {
        let done = (n.next_below(100)) as usize;
        match n.next_below(4) {
            0 => writeln!(text, "训练中 第 {step} 步 损失 2.{:04} 学习率 3.0e-04 预计剩余 {} 小时", n.next_below(9999), n.next_below(90)),
            1 => writeln!(
                text,
                "正在读取数据集 /data/译文/分片-{:04}.jsonl，共 {} 条，显存占用 {} MiB",
                n.next_below(2000),
                n.next_below(900_000),
                n.next_below(81_000)
            ),
            _ => writeln!(
                text,
                "Epoch {}: {done:>3}%|{}{}{}| {done}/100 [01:{:02}<02:{:02}, {}.{}it/s, 损失=2.{:03}]",
                step / 1000,
                "█".repeat(done / 10),
                blocks[n.next_below(8) as usize],
                " ".repeat(9 - done / 10),
                n.next_below(60),
                n.next_below(60),
                n.next_below(9),
                n.next_below(99),
                n.next_below(999)
            ),
        }
        .expect("writing to a String");
    })
}
