{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='trip_id') }}

-- Changed in place, so that a stream table that reads it gets the difference. A model that dbt builds anew each time is
-- another table each time, and makes its readers recompute.
with wanted as (
    select
        trip_id, day, zone,
        case when fare_cents >= 3000 then 'long' else 'short' end as kind,
        (fare_cents / 100)::decimal(10, 2) as fare
    from {{ source('bronze', 'trips') }}
)

select trip_id, day, zone, kind, fare from wanted
{% if is_incremental() %}
except
select trip_id, day, zone, kind, fare from {{ this }}
{% endif %}
