{# A model's schema is what its configuration says; dbt would put the target's name before it. #}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ custom_schema_name or target.schema }}
{%- endmacro %}
