//! Session of rskafka: create a topic, write to it, read it.
use std::{collections::BTreeMap, env, time::UNIX_EPOCH};

use rskafka::chrono::DateTime;
use rskafka::client::{
    ClientBuilder,
    partition::{Compression, OffsetAt, UnknownTopicHandling},
};
use rskafka::record::Record;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = env::args().collect();
    let client = ClientBuilder::new(vec![words[1].clone()]).client_id("rskafka").build().await?;
    let _ = client.controller_client()?.create_topic(&words[2], 1, 1, 5000).await;
    let partition = client.partition_client(&words[2], 0, UnknownTopicHandling::Retry).await?;
    let now_ms = UNIX_EPOCH.elapsed()?.as_millis() as i64;
    for batch in 0..10 {
        let records = (0..20)
            .map(|number| Record {
                key: Some(vec![batch]),
                value: Some(vec![number; 100]),
                headers: BTreeMap::from([("h".to_owned(), vec![1])]),
                timestamp: DateTime::from_timestamp_millis(now_ms).unwrap(),
            })
            .collect();
        partition.produce(records, Compression::NoCompression).await?;
    }
    let end = partition.get_offset(OffsetAt::Latest).await?;
    let mut next = 0;
    while next < end {
        let (records, _) = partition.fetch_records(next, 1..4_000, 1_000).await?;
        next = records.last().map_or(next, |last| last.offset + 1);
    }
    println!("read {next} of {end}");
    client.list_topics().await?;
    Ok(())
}
